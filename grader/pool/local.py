"""Places on this host: a process for each GPU, or several for its CPU."""

from __future__ import annotations

import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import grader
from grader.catalog.requests import Request
from grader.executor.worker_process import signal_name
from grader.pool import logs
from grader.pool.messages import Answer, GradeOrder, Setup, Stop
from grader.pool.place import PlaceLost, Ready, StartFailed
from grader.verdict.models import Verdict
from grader.verdict.profiles import Profile

START_SECONDS = 300.0
"""Most time for a process to import torch and start its first sandbox, on a slow disk. A choice."""
SEND_SECONDS = 60.0
"""Most time for a process to take what is sent, which a thread of its own reads at once. A choice."""
WRITE_SECONDS = 0.2
"""How often a thread that sends looks whether the process was ended meanwhile."""
PATIENCE_SECONDS = 5.0
"""Time for a process to end that closed its output."""
END_SECONDS = 15.0
"""Time for a process to end by itself when its work has ended, before it is killed. It may be importing torch."""


class ProcessPlace:
    """A process of its own session, which sees one device and owns its workers."""

    def __init__(self, name: str, setup: Setup, visibility: Mapping[str, str], depth: int) -> None:
        self.name, self.depth, self.device = name, depth, setup.device
        self._setup, self._visibility = setup, visibility
        self._process: subprocess.Popen[bytes] | None = None
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._writing = threading.RLock()

    def start(self) -> Ready:
        """Raises StartFailed, UserError, SandboxUnavailable."""
        self._lines = queue.SimpleQueue()
        packages = str(Path(grader.__file__).parents[1])
        path = os.pathsep.join(filter(None, (packages, os.environ.get("PYTHONPATH"))))
        # -P: the current folder may hold submissions, which must not be imported here.
        try:
            with self._writing:  # a stop that comes late waits, so that the setup is the first line
                self._process = process = subprocess.Popen(
                    [sys.executable, "-P", "-m", "grader.pool.process"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, "PYTHONPATH": path, **self._visibility},
                    start_new_session=True,
                )
                assert process.stdin is not None
                os.set_blocking(process.stdin.fileno(), False)
                threading.Thread(target=_read, args=(process, self._lines), daemon=True).start()
                setup = self._setup.model_copy(update={"log_level": logs.wanted_level()})
                self._write(setup.model_dump_json())
            answer = self._answer(START_SECONDS)
        except PlaceLost as lost:
            raise StartFailed(str(lost)) from lost
        if answer is None:
            raise StartFailed(f"did not start within {START_SECONDS:.0f} s", final=True)
        return answer.started()

    def send(self, number: int, request: Request) -> None:
        """Raises PlaceLost."""
        self._write(GradeOrder(number=number, request=request).model_dump_json())

    def receive(self, seconds: float) -> tuple[int, Verdict | Profile | Exception] | None:
        """Raises PlaceLost."""
        answer = self._answer(seconds)
        if answer is None:
            return None
        if answer.device_fault is not None:
            raise PlaceLost(f"no longer works: {answer.device_fault}")
        return answer.result()

    def stop(self, number: int) -> None:
        """Have a request that it holds end at its next job."""
        with suppress(PlaceLost):  # `receive` says so
            self._write(Stop(stop=number).model_dump_json())

    def end(self) -> None:
        """Ask the process to end, then kill it and its group. Its sandboxes end with it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def _write(self, line: str) -> None:
        process = self._process
        if process is None:
            raise PlaceLost("was ended", external=True)
        assert process.stdin is not None
        left, until = memoryview(line.encode() + b"\n"), time.monotonic() + SEND_SECONDS
        try:
            with self._writing:
                while left:
                    if time.monotonic() > until:
                        raise PlaceLost(f"took no request for {SEND_SECONDS:.0f} s", external=True)
                    if select.select([], [process.stdin], [], WRITE_SECONDS)[1]:
                        left = left[os.write(process.stdin.fileno(), left) :]
        except (OSError, ValueError):
            # It ended before it had this request.
            raise PlaceLost(self._ending(process), external=True) from None

    def _answer(self, seconds: float) -> Answer | None:
        """The next answer; records that the process logged are written meanwhile. Raises PlaceLost."""
        until = time.monotonic() + seconds
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return None
            if not line.endswith(b"\n"):
                process = self._process
                raise PlaceLost("was ended", external=True) if process is None else PlaceLost(self._ending(process))
            answer = Answer.model_validate_json(line)
            if answer.log is None:
                return answer
            logs.write(answer.log)

    def _ending(self, process: subprocess.Popen[bytes]) -> str:
        try:
            status = process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its output"
        return f"was ended by {signal_name(-status)}" if status < 0 else f"exited with status {status}"


def _read(process: subprocess.Popen[bytes], lines: queue.SimpleQueue[bytes]) -> None:
    """Move lines into the queue; the last one, without a newline, says that no more come."""
    assert process.stdout is not None
    with process.stdout as stdout:
        for line in stdout:
            if line.endswith(b"\n"):
                lines.put(line)
    lines.put(b"")
