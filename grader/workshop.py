"""What a batch shares: the sandbox, ready workers, warm references, builds that are kept."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

import torch

from grader import nursery
from grader.machine import architecture, environment
from grader.models import Device, Environment, Problem, Submission, TimeLimits
from grader.protocol import Warmed
from grader.remote import RemoteWorker
from grader.remote.launch import Launcher, Role
from grader.sandbox import choose
from grader.stages import build
from grader.stages.candidate import Candidate
from grader.stages.cases import Case
from grader.stages.outcome import Stopped, diagnose, raised
from grader.stages.reference import ReferenceDesk
from grader.stages.timing import BaselineStore, SpeedOfLight, workload
from grader.stages.timing.rounds import Plan
from grader.toolchain import find_toolchain

SandboxChoice = Literal["auto", "bubblewrap", "weak"]
DESKS_KEPT = {Device.CPU: 6, Device.CUDA: 3}
"""References that stay warm; each holds a process, and its cases hold memory."""
ALIGN_TRIES = 8
"""Processes that are started until one is like the candidate's, each in half a second; on an H200, one in three is."""


class Workshop:
    """Owns processes: a context manager. Building apart may be asked for by any thread, the rest by one."""

    def __init__(
        self,
        sandbox: SandboxChoice = "auto",
        build_cache: Path | None = None,
        limits: TimeLimits | None = None,
    ) -> None:
        """Raises SandboxUnavailable where the sandbox does not work."""
        self._sandbox = choose(sandbox)
        self._toolchain = find_toolchain()
        torch.set_num_threads(nursery.thread_count())
        self.limits = limits or TimeLimits()
        self.launcher = Launcher(self._sandbox, nursery.take(), architecture=architecture())
        folder = build_cache or default_build_cache()
        self.cache = build.BuildCache(folder, self._toolchain.hash)
        self.baselines = BaselineStore(folder)
        self.light = SpeedOfLight()
        self._desks: dict[tuple[str, Device], ReferenceDesk] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for desk in self._desks.values():
            desk.dismiss()
        for desk in self._desks.values():
            desk.close()
        self._desks.clear()
        self.launcher.close()

    def environment(self, device: Device) -> Environment:
        """What a verdict on this device is reached with."""
        return environment(device, self._toolchain, self._sandbox)

    def get_ready(self, problems: Sequence[Problem], device: Device) -> None:
        """Start in the background what grading submissions will need, for the first of these problems now, and for the
        others where there is room for their references."""
        self.launcher.prepare(Role.RUN, device)
        if device is Device.CUDA:
            torch.zeros(1, device="cuda")  # makes a context of our own too, while theirs are made
        missing = [(problem.source_hash, device) not in self._desks for problem in problems]
        room = DESKS_KEPT[device] - sum(of is device for _, of in self._desks)
        count = min(sum(missing), max(room, int(missing[0])))
        if count:
            self.launcher.prepare(Role.REFERENCE, device, count)

    def desk(self, problem: Problem, device: Device) -> ReferenceDesk:
        """The problem's reference, warm or started now. Raises ProblemError."""
        key = (problem.source_hash, device)
        desk = self._desks.pop(key, None)
        if desk is None:
            worker = self.launcher.take(Role.REFERENCE, device)
            try:
                desk = ReferenceDesk(problem, device, worker)
            except BaseException:
                worker.close()
                raise
        for other in self._desks.values():
            other.step_back()
        self._desks[key] = desk
        while len(self._desks) > DESKS_KEPT[device]:
            self._desks.pop(next(iter(self._desks))).close()
        return desk

    def drop_desk(self, problem: Problem, device: Device) -> None:
        """Forget a reference that something went wrong with."""
        desk = self._desks.pop((problem.source_hash, device), None)
        if desk is not None:
            desk.close()

    def align(self, desk: ReferenceDesk, candidate: Candidate, case: Case, plan: Plan) -> None:
        """Where launches show, have the reference in a process whose pace is the candidate's, as nearly as the plan
        wants and processes go. Raises ProblemError."""
        wanted = candidate.worker.pace
        if wanted is None or not case.values_comparable or not workload.launches_show(desk, case):
            return

        def apart(worker: RemoteWorker) -> float:
            return _apart(worker.pace, wanted)

        nearest, started = min(desk.workers, key=apart), list[RemoteWorker]()
        try:
            while apart(nearest) > plan.alike and len(started) < ALIGN_TRIES:
                started.append(self.launcher.take(Role.REFERENCE, desk.device))
                started[-1].wait_ready()
                nearest = min(nearest, started[-1], key=apart)
            desk.move_to(nearest)
        finally:
            for worker in started:
                if worker not in desk.workers:
                    worker.close()

    def build_apart(self, submission: Submission, *, niceness: int = 0) -> build.Built:
        """In a sandbox of its own that sees no GPU. Raises Stopped."""
        build.check_source(submission)
        with self.launcher.start(Role.BUILD, Device.CUDA, niceness=niceness) as worker:
            return build.import_submission(worker, submission, self.cache, keep=True, timeout_seconds=self.limits.build)

    @contextmanager
    def candidate(self, submission: Submission, device: Device, *, more_to_come: bool = False) -> Iterator[Candidate]:
        """A submission in a worker, ready to be run; with `more_to_come` the next one's starts. Raises Stopped."""
        build.check_source(submission)
        with self.launcher.take(Role.RUN, device, more_to_come=more_to_come) as worker:
            built = build.import_submission(
                worker, submission, self.cache, keep=False, timeout_seconds=self.limits.build
            )
            require_import(built)
            yield Candidate(worker, device, self.limits)


def _apart(one: Warmed | None, other: Warmed) -> float:
    """The larger of the relative differences."""
    if one is None:
        return math.inf
    return max(abs(one.launch_ms / other.launch_ms - 1), abs(one.call_ms / other.call_ms - 1))


def default_build_cache() -> Path:
    """`$XDG_CACHE_HOME/grader/builds`, or under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grader" / "builds"


def require_import(built: build.Built) -> None:
    """Raises Stopped for a file that could not be imported where it is to run."""
    if built.import_failure is None:
        return
    stopped = raised(built.import_failure, "load", "importing the file")
    if stopped.diagnosis.code == "raised":
        diagnosis = diagnose("import_raised", stopped.diagnosis.message, detail=stopped.diagnosis.detail)
        stopped = Stopped(stopped.status, diagnosis)
    raise stopped
