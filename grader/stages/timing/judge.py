"""The timing stage: ABBA rounds over two workers, on inputs that nobody has seen, outputs sealed and compared.

Ranked is the worker's own clock as long as it agrees with the referee's: the referee sees how long a job took from
sending it to holding the answer, and the reference, which has the same overheads, shows how much of that is overhead. A
candidate whose claim leaves more of its bracket unexplained than that is ranked by its bracket instead.
"""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from grader import protocol as p
from grader.models import Device, Diagnosis, PhaseTiming, StageStatus, Status, TimingResult
from grader.remote import Finding, RemoteWorker, Script, TensorSpec
from grader.stages import numerics
from grader.stages.backward.vjp import shape_of
from grader.stages.candidate import MODEL, Candidate, exports, output_specs
from grader.stages.cases import Case
from grader.stages.outcome import diagnose
from grader.stages.reference import ReferenceDesk, draw_cotangent, draw_inputs
from grader.stages.timing.statistics import Round, speedup

HALF_WIDTH_GOAL = 0.005
SLACK_MS = 1.0
SLACK_SHARE = 0.10
"""Of the bracket: the two clocks agree when what the claim leaves unexplained is no more than the reference leaves,
plus a millisecond, plus this share."""
HOST_FLUSH_BYTES = 64 << 20
TIMED_TOLERANCE = 4.0
"""A timed output may differ from the reference's, run with the same flags on the same inputs, by this many times that
reference's own error against float64, beside what rounding explains."""


@dataclass(frozen=True)
class Plan:
    """How long to go on."""

    min_rounds: int
    max_rounds: int
    seconds: float


QUICK = Plan(min_rounds=3, max_rounds=5, seconds=4.0)
THOROUGH = Plan(min_rounds=7, max_rounds=25, seconds=20.0)


@dataclass(frozen=True)
class TimingJudgement:
    result: TimingResult
    diagnoses: tuple[Diagnosis, ...]
    """Of severity error when a timed output was wrong."""

    @property
    def status(self) -> Status:
        """What a failed timing stage makes of the verdict."""
        return Status.WRONG_OUTPUT if self.result.status is StageStatus.FAILED else Status.CORRECT


@dataclass
class Side:
    """One of the two arms."""

    worker: RemoteWorker
    operands: Mapping[str, str]
    """Operand names of the reference to this side's."""
    shapes: Mapping[str, tuple[int, ...]]


@dataclass
class Samples:
    """Of one phase, by round."""

    rounds: list[Round] = field(default_factory=list)
    """What the workers claim."""
    brackets: list[Round] = field(default_factory=list)
    """What the referee saw."""
    unexplained: list[Round] = field(default_factory=list)
    """Bracket less the claim for the whole call."""


@dataclass(frozen=True)
class Times:
    """Of one call."""

    forward_ms: float
    backward_ms: float | None
    bracket_ms: float

    @property
    def whole_ms(self) -> float:
        return self.forward_ms + (self.backward_ms or 0.0)


@dataclass(frozen=True)
class Sample:
    """One timed call with its sealed outputs, which at full size are gigabytes: compare and let go."""

    times: Times
    finding: Finding


def judge_timing(
    candidate: Candidate, desk: ReferenceDesk, case: Case, plan: Plan, *, training: bool = True
) -> TimingJudgement:
    """Time one variant; without `training` the forward alone. Raises Stopped."""
    arms = _Arms(candidate, desk, case)
    training = training and bool(case.wrt)
    phases = ("inference", "training") if training else ("inference",)
    for phase in phases:  # warm up: lazy initialisation and autotuning stay out of the samples
        for _ in range(2):
            arms.pair(phase, random.random() < 0.5)
    samples = {name: Samples() for name in ("forward", "backward", "total")}
    started = time.monotonic()
    for count in range(plan.max_rounds):
        for phase in phases:
            reference_first = random.random() < 0.5
            pairs = []
            for first in (reference_first, not reference_first):
                reference, timed = arms.pair(phase, first)
                wrong = arms.compare(reference, timed)
                if wrong is not None:
                    return TimingJudgement(TimingResult(status=StageStatus.FAILED, variant=case.variant), (wrong,))
                pairs.append((reference.times, timed.times))
            _add(samples, phase, pairs)
        ranking = samples["total" if training else "forward"].rounds
        enough = count + 1 >= plan.min_rounds and speedup(ranking).half_width <= HALF_WIDTH_GOAL
        if enough or (time.monotonic() - started > plan.seconds and count + 1 >= 3):
            break
    timings = _timings(samples)
    diagnoses = tuple(_disagreement(name, timing) for name, timing in timings.items() if timing.clock == "referee")
    return TimingJudgement(TimingResult(status=StageStatus.PASSED, variant=case.variant, **timings), diagnoses[:1])


class _Arms:
    """Both workers, ready to run the same call on the same fresh inputs."""

    def __init__(self, candidate: Candidate, desk: ReferenceDesk, case: Case) -> None:
        self._candidate, self._desk, self._case = candidate, desk, case
        matching = candidate.prepare(case)
        desk.ready(case)
        self._states = (dict(case.state), {matching.names[k]: v for k, v in case.state.items() if k in matching.names})
        ours = {name: name for name in case.wrt}
        shapes = {name: shape_of(case, name) for name in case.wrt}
        theirs = candidate.operands(case)
        self._sides = (
            Side(desk.worker, ours, shapes),
            Side(candidate.worker, theirs, {name: candidate.shape(case, name) for name in theirs}),
        )
        self._flush_bytes = HOST_FLUSH_BYTES
        if desk.device is Device.CUDA:
            self._flush_bytes = 2 * torch.cuda.get_device_properties(0).L2_cache_size

    def pair(self, phase: str, reference_first: bool) -> tuple[Sample, Sample]:
        """(reference, candidate) on inputs drawn for this pair alone."""
        variant = self._desk.module.variants[self._case.variant]
        _, inputs = draw_inputs(variant, self._desk.device, secrets.randbits(62))
        cotangents = {
            name: draw_cotangent(tuple(value.shape), value.dtype, self._desk.device, False)
            for name, value in self._case.cotangents.items()
        }
        order = (0, 1) if reference_first else (1, 0)
        samples = {index: self._sample(index, phase, inputs, cotangents) for index in order}
        return samples[0], samples[1]

    def _sample(
        self, index: int, phase: str, inputs: Sequence[object], cotangents: Mapping[str, torch.Tensor]
    ) -> Sample:
        side, training = self._sides[index], phase == "training"
        script = Script(side.worker, self._desk.device)
        script.set_state(MODEL, self._states[index])
        script.put_inputs("t", inputs, requires_grad=training)
        call = p.TimedCall(
            inputs="t", tape="t", grads="t", cotangents=script.cotangents(cotangents) if training else {}
        )
        script.step(
            p.Time(
                model=MODEL,
                phase="training" if training else "inference",
                calls=(call,),
                wrt=tuple(side.operands.values()) if training else (),
                training=self._case.training,
                flush_bytes=self._flush_bytes,
                clone_inputs=self._case.clone_inputs,
            )
        )
        script.export(exports("output", "t", output_specs(self._case)))
        if training:
            specs = {side.operands[name]: TensorSpec(shape, torch.float32) for name, shape in side.shapes.items()}
            script.export(exports("grad", "t", specs))
        script.step(p.Drop())
        doing = f"timing {phase} on variant {self._case.variant}"
        finding = self._candidate.run(script, "timing", doing) if index else self._desk.run(script)
        timed = finding.of(p.Timed)[0]
        backward = timed.backward_ms[0] if timed.backward_ms else None
        return Sample(Times(max(timed.forward_ms[0], 1e-6), backward, finding.bracket_ms), finding)

    def compare(self, reference: Sample, candidate: Sample) -> Diagnosis | None:
        """Every element of every timed output and gradient, beside the reference's of the same inputs."""
        if not self._case.values_comparable:
            return None
        pairs = [(expected, f"output:t:{name}", f"output:t:{name}") for name, expected in self._case.outputs.items()]
        for name, theirs in self._sides[1].operands.items():
            gradient = self._case.gradients[name]
            if gradient is not None and f"grad:t:{name}" in reference.finding.sealed:
                pairs.append((gradient, f"grad:t:{name}", f"grad:t:{theirs}"))
        for expected, ours, other in pairs:
            wrong = self._differs(expected, reference.finding.sealed[ours], candidate.finding.sealed.get(other))
            if wrong is not None:
                return wrong
        return None

    def _differs(
        self, expected: numerics.Expected, reference: torch.Tensor, found: torch.Tensor | None
    ) -> Diagnosis | None:
        label = expected.name
        if found is None:
            return diagnose("timed_output_wrong", f"{label} is missing from a timed call")
        if not expected.dtype.is_floating_point:
            return None  # exact equality was asked for in the untimed cases; near ties fall either way here
        yardstick = self._desk.shipped_error(self._case).get(label, 0.0)
        size = float(torch.linalg.vector_norm(reference.double().reshape(-1)))
        distance = float(
            torch.linalg.vector_norm((found.view(reference.shape).double() - reference.double()).reshape(-1))
        )
        units = numerics.ROUNDING_UNITS + expected.reduction_length**0.5
        bound = TIMED_TOLERANCE * yardstick * size + 2 * units * numerics.EPSILON * size + 1e-30
        if distance <= bound:
            return None
        return diagnose(
            "timed_output_wrong",
            f"{label} of a timed call differs from the reference's by {distance / max(size, 1e-300):.2g} "
            f"(relative RMS), allowed is {bound / max(size, 1e-300):.2g}, while the untimed cases passed",
        )


def _add(samples: Mapping[str, Samples], phase: str, pairs: Sequence[tuple[Times, Times]]) -> None:
    def record(name: str, value: Callable[[Times], float]) -> None:
        samples[name].rounds.append(_round(pairs, value))
        samples[name].brackets.append(_round(pairs, lambda times: times.bracket_ms))
        unexplained = _round(pairs, lambda times: max(times.bracket_ms - times.whole_ms, 1e-6))
        samples[name].unexplained.append(unexplained)

    if phase == "inference":
        record("forward", lambda times: times.forward_ms)
    else:
        record("backward", lambda times: max(times.backward_ms or 0.0, 1e-6))
        record("total", lambda times: times.whole_ms)


def _round(pairs: Sequence[tuple[Times, Times]], value: Callable[[Times], float]) -> Round:
    first, second = pairs
    return Round((value(first[0]), value(second[0])), (value(first[1]), value(second[1])))


def _timings(samples: Mapping[str, Samples]) -> dict[str, PhaseTiming]:
    timings = {}
    for name, of in samples.items():
        if not of.rounds:
            continue
        overhead = statistics.median(sum(r.reference_ms) / 2 for r in of.unexplained)
        found = statistics.median(sum(r.candidate_ms) / 2 for r in of.unexplained)
        bracket = statistics.median(sum(r.candidate_ms) / 2 for r in of.brackets)
        if found - overhead <= SLACK_MS + SLACK_SHARE * bracket:
            timings[name] = _phase(of.rounds, "worker")
        elif name != "backward":  # a bracket spans the whole call, so it cannot stand in for the backward alone
            timings[name] = _phase([_net(brackets, overhead) for brackets in of.brackets], "referee")
    return timings


def _phase(rounds: Sequence[Round], clock: Literal["worker", "referee"]) -> PhaseTiming:
    figures = speedup(rounds)
    candidate_ms = [value for r in rounds for value in r.candidate_ms]
    reference_ms = [value for r in rounds for value in r.reference_ms]
    return PhaseTiming(
        candidate_ms=statistics.median(candidate_ms),
        reference_ms=statistics.median(reference_ms),
        speedup=figures.speedup,
        ci_low=figures.ci_low,
        ci_high=figures.ci_high,
        verdict=figures.verdict,
        rounds=len(rounds),
        candidate_samples_ms=tuple(candidate_ms),
        reference_samples_ms=tuple(reference_ms),
        clock=clock,
    )


def _net(brackets: Round, overhead: float) -> Round:
    reference = tuple(max(value - overhead, 1e-6) for value in brackets.reference_ms)
    candidate = tuple(max(value - overhead, 1e-6) for value in brackets.candidate_ms)
    return Round(reference, candidate)  # type: ignore[arg-type]


def _disagreement(name: str, timing: PhaseTiming) -> Diagnosis:
    return diagnose(
        "clock_disagreement",
        f"the {name} time claimed inside the sandbox is shorter than the referee's clock allows; "
        f"ranked by the referee's {timing.candidate_ms:.3g} ms",
        severity="warning",
    )
