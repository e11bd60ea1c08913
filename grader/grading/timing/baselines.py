"""Other ways of running the reference: eager, and compiled by torch.compile with and without its search for kernels.

All are timed in one worker of their own, in turns and on the same fresh inputs, when no submission is there to disturb
them. They hold for every submission that is graded for this problem in this environment, and so are kept.
"""

from __future__ import annotations

import secrets
import statistics
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from grader import protocol as p
from grader.catalog.problem_module import Variant
from grader.executor import JobBuilder, WorkerClient, WorkerLost
from grader.grading.oracle.case import Case
from grader.grading.oracle.drawing import draw_cotangent, draw_inputs
from grader.grading.timing.call import PARTS, Phase
from grader.verdict.models import Baseline, Device, Environment, Problem, digest

Name = Literal["eager", "compile", "compile_max_autotune"]
MODES: dict[Name, Literal["none", "default", "max-autotune-no-cudagraphs"]] = {
    "eager": "none",
    "compile": "default",
    "compile_max_autotune": "max-autotune-no-cudagraphs",
}
COMPILE_SECONDS = 600.0
"""For the first forward and the first backward of one way, which search for kernels."""
CALL_SECONDS = 300.0
ROUNDS = 5
FORMAT = "1"
"""Raised when what is measured changes, so that kept figures of before are not used."""
_STORED = TypeAdapter(tuple[Baseline, ...])


class BaselineStore:
    """One JSON file for each problem, variant, precision and environment; read-only, and appears whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incomplete: dict[str, tuple[Baseline, ...]] = {}

    def get(
        self,
        problem: Problem,
        case: Case,
        environment: Environment,
        tf32: bool,
        measure: Callable[[], tuple[Baseline, ...]],
    ) -> tuple[Baseline, ...]:
        """Kept ones, else measured now. Where a way failed, it is tried again by the next Grader."""
        key = digest(f"{FORMAT} {problem.source_hash} {case.variant} {tf32} {environment.environment_hash}")
        path = self._folder / f"{key}.baselines.json"
        kept = self._incomplete.get(key) or _read(path)
        if kept is None:
            kept = measure()
            if len(kept) == len(MODES):
                self._write(path, kept)
            else:
                self._incomplete[key] = kept
        return kept

    def _write(self, path: Path, found: tuple[Baseline, ...]) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(_STORED.dump_json(found))
        Path(file.name).chmod(0o400)
        Path(file.name).replace(path)


def measure(
    worker: WorkerClient,
    problem: Problem,
    variant: Variant,
    case: Case,
    device: Device,
    *,
    tf32: bool,
    flush_bytes: int,
) -> tuple[Baseline, ...]:
    """In a fresh worker. A way that cannot be compiled is left out; none where the worker is lost on the way."""
    try:
        return _measured(_Stand(worker, variant, case, device, tf32, flush_bytes), problem)
    except (_Failed, WorkerLost):
        return ()


def _measured(stand: _Stand, problem: Problem) -> tuple[Baseline, ...]:
    stand.run([p.Import(source=problem.source, file_name=f"{problem.id}.py", class_name="Model")], CALL_SECONDS)
    ready = [name for name in MODES if stand.prepare(name)]
    phases = stand.phases
    times: dict[tuple[Name, Phase], list[float]] = {(name, phase): [] for name in ready for phase in phases}
    for count in range(ROUNDS):
        for phase in phases:
            inputs = stand.draw()
            for name in ready if count % 2 else reversed(ready):
                times[name, phase].append(stand.time(name, phase, inputs))
    return tuple(
        Baseline(
            name=name,
            forward_ms=statistics.median(times[name, "inference"]),
            total_ms=statistics.median(times[name, "training"]) if "training" in phases else None,
        )
        for name in ready
    )


class _Failed(Exception):
    """A step raised: a compiler that gave up, or no memory."""


class _Stand:
    """One worker with the reference in each way."""

    def __init__(
        self, worker: WorkerClient, variant: Variant, case: Case, device: Device, tf32: bool, flush_bytes: int
    ) -> None:
        self._worker, self._variant, self._case, self._device = worker, variant, case, device
        self._tf32, self._flush_bytes = tf32, flush_bytes
        self.phases: tuple[Phase, ...] = ("inference", "training") if case.wrt else ("inference",)

    def prepare(self, name: Name) -> bool:
        """Construct and run once in each phase, which compiles. False where that fails."""
        construct = p.Construct(
            model=name,
            init_inputs=self._case.init_inputs,
            device=self._device.value,
            seed=secrets.randbits(62),
            compile_mode=MODES[name],
        )
        try:
            self.run([construct], CALL_SECONDS)
            for phase in self.phases:
                for _ in range(2):
                    self.time(name, phase, self.draw(), COMPILE_SECONDS)
        except _Failed:
            return False
        return True

    def draw(self) -> list[object]:
        return draw_inputs(self._variant, self._device, secrets.randbits(62))[1]

    def time(self, name: Name, phase: Phase, inputs: list[object], seconds: float = CALL_SECONDS) -> float:
        """Milliseconds of one call, forward and backward together in training; caches are cold before each part."""
        total = 0.0
        for part in PARTS[phase]:
            script = JobBuilder(self._worker, self._device)
            if part != "backward":
                script.set_state(name, self._case.state)
                script.put_inputs("t", inputs, requires_grad=phase == "training")
            cotangents: Mapping[str, p.Cotangent] = {}
            if part == "backward":
                given = self._case.cotangents.items()
                cotangents = script.cotangents(
                    {key: draw_cotangent(tuple(g.shape), g.dtype, self._device, False) for key, g in given}
                )
            script.step(
                p.Time(
                    part=part,
                    model=name,
                    inputs="t",
                    tape="t",
                    grads="t",
                    cotangents=dict(cotangents),
                    wrt=self._case.wrt if part == "backward" else (),
                    training=self._case.training,
                    tf32=self._tf32,
                    flush_bytes=self._flush_bytes,
                    clone_inputs=self._case.clone_inputs,
                )
            )
            finding = script.run(seconds)
            if finding.failure is not None:
                raise _Failed(finding.failure.text)
            total += finding.of(p.Timed)[0].ms
        self.run([p.Drop(empty_cache=False)], CALL_SECONDS)
        return total

    def run(self, steps: list[p.Step], seconds: float) -> None:
        evidence = self._worker.run(steps, seconds)
        if evidence.failure is not None:
            raise _Failed(evidence.failure.text)


def _read(path: Path) -> tuple[Baseline, ...] | None:
    try:
        return _STORED.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return None
