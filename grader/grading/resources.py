"""Resources that a batch shares: the sandbox, spare workers, warm references and the build cache."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Self

import torch

from grader.catalog.requests import Request
from grader.executor import WorkerClient, launcher
from grader.executor.launcher import Role
from grader.grading import build
from grader.grading.budget import Budget
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.placement import Constructor
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.timing.baselines import Baselines, BaselineStore, measure_baselines
from grader.grading.timing.launches import launches_show
from grader.grading.timing.roofline import Roofline
from grader.grading.timing.stopping import RoundLimits
from grader.machine.backends import backend
from grader.machine.host import environment, thread_count
from grader.machine.toolchain import find_toolchain
from grader.options import SandboxChoice
from grader.protocol import CompileAhead, Warmed
from grader.sandbox import choose
from grader.verdict.models import Device, Environment, Problem, Submission, TimeLimits
from grader.verdict.precision import Precision


class Resources:
    """Owns processes: a context manager. Any thread may call `build_apart`, one thread the rest."""

    def __init__(
        self,
        sandbox: SandboxChoice = "auto",
        build_cache: Path | None = None,
        limits: TimeLimits | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Raises SandboxUnavailable where the sandbox does not work."""
        self._sandbox = choose(sandbox)
        self._toolchain = find_toolchain()
        torch.set_num_threads(thread_count())
        self.limits, self.budget = limits or TimeLimits(), budget or Budget()
        self.launcher = launcher.take(self._sandbox)
        self.cache = build.BuildCache(build_cache, self._toolchain.hash)
        self.roofline = Roofline(self.cache.folder, self.environment)
        self._oracles: dict[tuple[str, Device, Precision], Oracle] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for oracle in self._oracles.values():
            oracle.process.dismiss()
        self.launcher.dismiss_spares()
        for oracle in self._oracles.values():
            oracle.process.close()
        self._oracles.clear()
        self.launcher.close()

    def environment(self, device: Device) -> Environment:
        """The environment of a verdict on this device."""
        return environment(device, self._toolchain, self._sandbox)

    def get_ready(self, requests: Sequence[Request]) -> None:
        """Start workers in the background for a submission and for references, all on one device.

        Always prepares a reference for the first problem; for the others while fewer than `warm_references` are alive.
        """
        device = requests[0].device
        self.launcher.prepare(Role.RUN, device)
        backend(device).prepare()
        missing = [
            (request.problem.source_hash, device, request.precision) not in self._oracles for request in requests
        ]
        room = backend(device).warm_references - sum(oracle_device is device for _, oracle_device, _ in self._oracles)
        count = min(sum(missing), max(room, int(missing[0])))
        if count:
            self.launcher.prepare(Role.REFERENCE, device, count)

    def oracle_of(self, request: Request) -> Oracle:
        """The reference of a request, warm or started now. Raises ProblemError."""
        return self.oracle(request.problem, request.device, request.precision)

    def oracle(self, problem: Problem, device: Device, precision: Precision = Precision.FP32) -> Oracle:
        """The problem's reference, warm or started now. Raises ProblemError."""
        key = (problem.source_hash, device, precision)
        oracle = self._oracles.pop(key, None)
        if oracle is not None and oracle.process.is_broken:
            self._end(oracle)
            oracle = None
        if oracle is None:
            worker = self.launcher.take(Role.REFERENCE, device)
            try:
                oracle = Oracle(problem, device, worker, self.budget, precision)
            except BaseException:
                worker.close()
                raise
        self._oracles[key] = oracle  # first, so that it is closed if another one fails
        for other in self._oracles.values():
            if other is not oracle:
                other.step_back()
        on_device = [key for key in self._oracles if key[1] is device]
        for other_key in on_device[: -backend(device).warm_references]:
            self._end(self._oracles.pop(other_key))
        return oracle

    def _end(self, oracle: Oracle) -> None:
        """End a reference that nothing waits for; on a GPU, which takes a tenth of a second, in the background."""
        if backend(oracle.device).ends_in_background:
            while oracle.process.workers:
                self.launcher.dismiss(oracle.process.workers.pop())
        oracle.process.close()

    def make_room(self) -> None:
        """Forget all references, and give back the device memory that their cases and past failures hold."""
        devices = {device for _, device, _ in self._oracles}
        while self._oracles:
            self._oracles.popitem()[1].process.close()
        gc.collect()  # a traceback and its frames, which hold tensors, refer to each other
        for device in devices:
            backend(device).empty_cache()

    def drop_oracle_of(self, request: Request) -> None:
        """Forget a request's reference after a failure."""
        self.drop_oracle(request.problem, request.device, request.precision)

    def drop_oracle(self, problem: Problem, device: Device, precision: Precision) -> None:
        """Forget a reference after a failure."""
        oracle = self._oracles.pop((problem.source_hash, device, precision), None)
        if oracle is not None:
            oracle.process.close()

    def align(self, oracle: Oracle, candidate: Candidate, case: Case, limits: RoundLimits) -> float:
        """Move the reference to a process with the candidate's launch pace, or to the one closest to it.

        Returns the relative difference of the paces that is left; 0 where it does not show.

        The paces are equal if they differ by at most `limits.pace_tolerance`. Processes are started for
        `limits.seconds`: each takes half a second, and on an H200 one in three has the pace. Only where launches show
        in the times. Raises ProblemError.
        """
        wanted = candidate.worker.pace
        if wanted is None or not case.values_comparable or not launches_show(oracle, case, limits.short_ms):
            return 0.0

        def apart(worker: WorkerClient) -> float:
            return _apart(worker.pace, wanted)

        nearest, started = min(oracle.process.workers, key=apart), list[WorkerClient]()
        end = time.monotonic() + limits.seconds
        try:
            while apart(nearest) > limits.pace_tolerance and time.monotonic() < end:
                started.append(self.launcher.take(Role.REFERENCE, oracle.device))
                started[-1].wait_ready()
                nearest = min(nearest, started[-1], key=apart)
            oracle.models.move_to(nearest)
            return apart(nearest)
        finally:
            for worker in started:
                if worker not in oracle.process.workers:
                    worker.close()

    def baselines(self, oracle: Oracle, case: Case, *, tf32: bool) -> Baselines:
        """The stored baselines of a case, else measured now in a worker of their own."""

        def measure() -> Baselines:
            with self.launcher.start(Role.REFERENCE, oracle.device) as worker:
                return measure_baselines(worker, oracle, case, self.cache, tf32=tf32, limits=self.limits)

        environment = self.environment(oracle.device)
        return self._baselines.get(oracle.problem, case, environment, tf32, measure, oracle.precision)

    @cached_property
    def _baselines(self) -> BaselineStore:
        return BaselineStore(self.cache.folder)

    def build_apart(
        self,
        submission: Submission,
        device: Device,
        *,
        niceness: int = 0,
        ahead: Sequence[CompileAhead] | None = None,
    ) -> build.Built:
        """Build in a worker of its own that sees no GPU; `ahead` as in `import_submission`. Raises Stopped."""
        build.check_source(submission)
        with self.launcher.start(Role.BUILD, device, niceness=niceness) as worker:
            return build.import_submission(
                worker, submission, self.cache, keep=True, timeout_seconds=self.limits.build, ahead=ahead
            )

    @contextmanager
    def candidate(
        self,
        submission: Submission,
        device: Device,
        precision: Precision = Precision.FP32,
        *,
        reference_constructor: Constructor | None = None,
    ) -> Iterator[Candidate]:
        """A submission imported in a worker, without the checks of a grading. Raises Stopped."""
        build.check_source(submission)
        with self.launcher.take(Role.RUN, device) as worker:
            built = build.import_submission(
                worker,
                submission,
                self.cache,
                keep=False,
                timeout_seconds=self.limits.build,
                precision=precision,
            )
            build.require_import(built)
            yield Candidate(worker, device, self.limits, reference_constructor=reference_constructor)


def _apart(one: Warmed | None, other: Warmed) -> float:
    """The larger of the relative differences."""
    if one is None:
        return math.inf
    return max(abs(one.launch_ms / other.launch_ms - 1), abs(one.call_ms / other.call_ms - 1))
