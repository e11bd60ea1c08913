"""Baseline times: the reference eager, and compiled with and without a search for kernels.

All are timed in one worker of their own, in turn and on the same fresh inputs, while no submission is running. They are
kept, since they hold for every submission to this problem in this environment. What TorchInductor compiled is kept too:
where the times no longer hold, it often does, and a search that took too long goes on from there the next time.
"""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import TypeAdapter

from grader import protocol as p
from grader.executor import JobBuilder, WorkerClient, WorkerLost
from grader.grading import chance
from grader.grading.build import BuildCache, bundles, keep_kernels
from grader.grading.kept_files import KeptValues
from grader.grading.messages import MAX_QUOTED
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.reference_process import REFERENCE_SECONDS
from grader.grading.oracle.values import draw_cotangents
from grader.grading.timing.calls import PARTS, Part, Phase, phases_of
from grader.machine.backends import backend
from grader.verdict.models import Environment, Problem, TimeLimits
from grader.verdict.precision import Precision
from grader.verdict.stages import Baseline

Name = Literal["eager", "compile", "compile_max_autotune"]
MODES: dict[Name, Literal["none", "default", "max-autotune-no-cudagraphs"]] = {
    "eager": "none",
    "compile": "default",
    "compile_max_autotune": "max-autotune-no-cudagraphs",
}
"""In the order in which they are compiled."""
SEARCH: Name = "compile_max_autotune"
FORMAT = "2"
"""Raised when what is measured changes, so that older stored figures are not used."""
_CALLED: dict[Name, str] = {
    "eager": "eager PyTorch",
    "compile": "torch.compile",
    "compile_max_autotune": "torch.compile's max-autotune",
}
logger = logging.getLogger(__name__)


class Baselines(NamedTuple):
    """The baselines that were timed, and why others were not."""

    timed: tuple[Baseline, ...] = ()
    missing: tuple[str, ...] = ()
    """A sentence for each baseline that could not be timed."""


class BaselineStore:
    """Stored baselines: a read-only JSON file for each problem, variant, precision and environment."""

    def __init__(self, folder: Path) -> None:
        self._kept = KeptValues(folder, "baselines", TypeAdapter(tuple[Baseline, ...]))
        self._known: dict[str, Baselines] = {}

    def get(
        self,
        problem: Problem,
        case: Case,
        environment: Environment,
        tf32: bool,
        measure: Callable[[], Baselines],
        precision: Precision = Precision.FP32,
    ) -> Baselines:
        """The stored baselines, else measured now. One that is missing is tried again by the next Grader."""
        how = f"{tf32}" if precision is Precision.FP32 else precision
        key = f"{FORMAT} {problem.source_hash} {case.variant} {how} {environment.environment_hash}"
        found = self._known.get(key)
        if found is None and (kept := self._kept.get(key)) is not None:
            found = Baselines(kept)
        if found is None:
            found = measure()
            if len(found.timed) == len(MODES):
                self._kept.keep(key, found.timed)
        self._known[key] = found
        return found


def measure_baselines(
    worker: WorkerClient, oracle: Oracle, case: Case, cache: BuildCache, *, tf32: bool, limits: TimeLimits
) -> Baselines:
    """Baselines of the oracle's problem timed in a fresh worker, with kernels that `cache` has of it.

    The search has what the compilers before it left of `limits.baselines`. It comes after the others were timed, so
    that a worker that is lost in it takes nothing else with it.
    """
    problem, reference = oracle.problem, _TimedReference(worker, oracle, case, tf32, limits.call)
    ready, timed, missing = list[Name](), tuple[Baseline, ...](), list[str]()
    left = limits.baselines
    try:
        reference.load(oracle.models.importing(), cache.get(problem))
        for name in MODES:
            started = time.monotonic()
            try:
                reference.prepare(name, max(left, 0.0) if name == SEARCH else limits.build)
                ready.append(name)
            except _Failed as error:
                missing.append(f"{_CALLED[name]} was not timed: {error}")
            added = keep_kernels(worker, problem, cache, REFERENCE_SECONDS, end_compilers=name == [*MODES][-1])
            prepared = time.monotonic()
            if MODES[name] != "none":
                left -= prepared - started
            if name in ready:
                timed = _timed(reference, ready)
            took = prepared - started, added, time.monotonic() - prepared
            logger.info("%s of %s: %.1f s to compile, %s new files, %.1f s to time", name, problem.id, *took)
    except (_Failed, WorkerLost) as error:
        missing.append(f"the worker that times the reference compiled was lost: {error}")
    return Baselines(timed, tuple(missing))


def _timed(reference: _TimedReference, ready: list[Name], rounds: int = 5) -> tuple[Baseline, ...]:
    times: dict[tuple[Name, Phase], list[Mapping[Part, float]]]
    times = {(name, phase): [] for name in ready for phase in reference.phases}
    for count in range(rounds):
        for phase in reference.phases:
            inputs = reference.draw()
            for name in ready if count % 2 else reversed(ready):
                times[name, phase].append(reference.time(name, phase, inputs))
    return tuple(_baseline(name, times[name, "inference"], times.get((name, "training"), [])) for name in ready)


def _baseline(name: Name, inference: list[Mapping[Part, float]], training: list[Mapping[Part, float]]) -> Baseline:
    return Baseline(
        name=name,
        forward_ms=statistics.median(call["inference"] for call in inference),
        backward_ms=statistics.median(call["backward"] for call in training) if training else None,
        total_ms=statistics.median(sum(call.values()) for call in training) if training else None,
    )


class _Failed(Exception):
    """A step raised: the compiler failed, or memory ran out."""


class _TimedReference:
    """One worker with the reference as each baseline runs it."""

    def __init__(self, worker: WorkerClient, oracle: Oracle, case: Case, tf32: bool, call_seconds: float) -> None:
        self._worker, self._case, self._device, self._tf32 = worker, case, oracle.device, tf32
        self._call_seconds = call_seconds
        self._flush_bytes = backend(oracle.device).flush_bytes()
        self.draw: Callable[[], list[object]] = lambda: oracle.models.draw(case.variant)[1]
        self.phases = phases_of(case)

    def load(self, importing: p.Import, kept: Path | None) -> None:
        """Import the problem, and take the kernels that were kept of it."""
        with bundles(kept=kept) as descriptors:
            step = importing.model_copy(update={"use_bundle": kept is not None})
            self.run([step], REFERENCE_SECONDS, descriptors)

    def prepare(self, name: Name, seconds: float) -> None:
        """Construct and run twice in each phase, which compiles. Raises _Failed, after `seconds` too."""
        construct = p.Construct(
            model=name,
            init_inputs=self._case.init_inputs,
            device=backend(self._device).torch_device,
            seed=chance.new_seed(),
            compile_mode=MODES[name],
        )
        self.run([construct], REFERENCE_SECONDS)
        deadline = time.monotonic() + seconds
        try:
            for phase in self.phases:
                for _ in range(2):
                    self.time(name, phase, self.draw(), deadline)
        except _Failed as error:
            if time.monotonic() < deadline:
                raise
            raise _Failed(f"it was not ready after {seconds:.0f} s; --regrade goes on with what is compiled") from error

    def time(
        self, name: Name, phase: Phase, inputs: list[object], deadline: float | None = None
    ) -> Mapping[Part, float]:
        """Milliseconds of each part of one call. Caches are cold before each part. Raises _Failed."""
        took: dict[Part, float] = {}
        for part in PARTS[phase]:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            job = JobBuilder(self._worker, self._device)
            timed = self._case.timed(part, model=name, tf32=self._tf32, flush_bytes=self._flush_bytes)
            if part == "backward":
                drawn = draw_cotangents(self._case.cotangents, self._device)
                timed |= {"cotangents": job.cotangents(drawn), "wrt": self._case.wrt}
            else:
                job.set_state(name, self._case.state)
                job.put_inputs("t", inputs, requires_grad=phase == "training")
            job.step(p.Time(**timed, limit_seconds=left))
            # The worker is given up later: nothing ends a compiler outside its main thread.
            result = job.run(REFERENCE_SECONDS if left is None else left + self._call_seconds)
            if result.failure is not None:
                raise _Failed(result.failure.text.strip().partition("\n")[0][:MAX_QUOTED])
            took[part] = result.of(p.Timed)[0].ms
        self.run([p.Drop(keep_bytes=None)], REFERENCE_SECONDS)
        return took

    def run(self, steps: list[p.Step], seconds: float, descriptors: list[int] | None = None) -> None:
        evidence = self._worker.run(steps, seconds, descriptors or [])
        if evidence.failure is not None:
            raise _Failed(evidence.failure.text)
