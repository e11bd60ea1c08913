"""The process of one place: reads work from stdin, writes answers to stdout, both as lines of JSON.

    python -P -m grader.pool.process

It ends when stdin does, so that nothing is left of a pool that was killed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import BinaryIO

from pydantic import TypeAdapter

from grader.errors import GraderError
from grader.pool import logs
from grader.pool.loop import Engine, GradingLoop, make_engine
from grader.pool.messages import Answer, Setup, Stop, Trouble, Work
from grader.pool.place import Ready
from grader.verdict.models import Device

PATIENCE_SECONDS = 15.0
"""Time to end the workers after stdin has ended."""


def main() -> None:
    """Grade until stdin ends."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the pool decides what ends
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    lines = os.fdopen(os.dup(0), "rb")  # not sys.stdin, whose end waits for the thread that reads it
    setup = Setup.model_validate_json(lines.readline())
    lock = threading.Lock()

    def answer(one: Answer) -> None:
        with lock:
            out.write(one.model_dump_json(exclude_none=True).encode() + b"\n")
            out.flush()

    logs.send_from(setup.log_level, lambda record: answer(Answer(log=record)))
    try:
        engine = _engine(setup)
        try:
            fault = engine.device_fault(setup.device)
            if fault is not None:
                answer(Answer(device_fault=fault))
                return
            answer(Answer(ready=_ready(engine)))
            loop = GradingLoop(engine, answer)
            threading.Thread(target=_read, args=(lines, loop), daemon=True).start()
            loop.run()
        finally:
            engine.close()
    except GraderError as error:
        answer(Answer(trouble=Trouble.of(error)))


def _engine(setup: Setup) -> Engine:
    from grader.machine import host, turns

    if setup.turns is not None:
        turns.join(setup.turns)
    if setup.cores is not None:
        share = setup.cores
        host.share_cores(share.own, share.builds, share.sharers, host.thread_count())
    return make_engine(setup.engine, setup.options)


def _ready(engine: Engine) -> Ready:
    return Ready(environments={device: engine.environment_on(device) for device in Device}, process=os.getpid())


def _read(lines: BinaryIO, loop: GradingLoop) -> None:
    orders = TypeAdapter[Work | Stop](Work | Stop)
    for line in lines:
        order = orders.validate_json(line)
        if isinstance(order, Stop):
            loop.stop(order.stop)
        else:
            loop.put(order)
    threading.Timer(PATIENCE_SECONDS, os._exit, (1,)).start()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
