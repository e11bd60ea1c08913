"""The process of one place: reads work from stdin, writes answers to stdout, both as lines of JSON.

    python -P -m grader.pool.process

It ends when stdin does, so that nothing is left of a pool that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import Future
from typing import BinaryIO

from pydantic import TypeAdapter

from grader.ending import CLEANING_SECONDS, end_on
from grader.errors import GraderError
from grader.pool import logs
from grader.pool.loop import Engine, GradingLoop, make_engine
from grader.pool.messages import Answer, GradeOrder, Setup, Stop, Trouble
from grader.pool.place import Ready
from grader.verdict.models import Device

PATIENCE_SECONDS = 15.0
"""Time to end the workers after stdin has ended."""


def main() -> None:
    """Grade until stdin ends."""
    for number in (signal.SIGINT, signal.SIGHUP):  # of a terminal: the pool decides what ends
        signal.signal(number, signal.SIG_IGN)
    end_on([signal.SIGTERM])
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    lines = os.fdopen(os.dup(0), "rb")  # not sys.stdin, whose end waits for the thread that reads it
    setup = Setup.model_validate_json(lines.readline())
    lock = threading.Lock()

    def answer(one: Answer) -> None:
        with lock:
            try:
                out.write(one.model_dump_json(exclude_none=True).encode() + b"\n")
                out.flush()
            except BrokenPipeError:  # the pool has ended
                os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # where the interpreter flushes the rest to
                sys.exit(1)

    logs.send_from(setup.log_level, lambda record: answer(Answer(log=record)))
    starting: Future[GradingLoop] = Future()
    closing = threading.Event()
    threading.Thread(target=_read, args=(lines, starting, closing), daemon=True).start()  # the pool may end meanwhile
    try:
        engine = _engine(setup)
        try:
            fault = engine.device_fault(setup.device)
            if fault is not None:
                answer(Answer(device_fault=fault))
                return
            answer(Answer(ready=_ready(engine)))
            loop = GradingLoop(engine, answer)
            starting.set_result(loop)
            loop.run()
        finally:
            closing.set()
            engine.close()
    except GraderError as error:
        answer(Answer(trouble=Trouble.of(error)))


def _engine(setup: Setup) -> Engine:
    from grader.machine import host, turns

    if setup.turns is not None:
        turns.join(setup.turns)
    if setup.cores is not None:
        host.share_cores(setup.cores)
    return make_engine(setup.engine, setup.options)


def _ready(engine: Engine) -> Ready:
    return Ready(environments={device: engine.environment_on(device) for device in Device}, process=os.getpid())


def _read(lines: BinaryIO, starting: Future[GradingLoop], closing: threading.Event) -> None:
    orders = TypeAdapter[GradeOrder | Stop](GradeOrder | Stop)
    for line in lines:
        order = orders.validate_json(line)
        if isinstance(order, Stop):
            starting.result().stop(order.stop)
        else:
            starting.result().put(order)
    threading.Timer(PATIENCE_SECONDS, os._exit, (1,)).start()
    while not closing.is_set():  # again if nothing closes: an exception may get lost in a finalizer
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(CLEANING_SECONDS + 1)


if __name__ == "__main__":
    main()
