"""A backward beside its own forward, where a reference that draws random numbers has no values to compare with.

Three questions about grad_outputs that no chance answers, each along a direction in which the operands move. Where it
is random, and the forward's own derivative is the grad_output, the gradient must tell its square: all terms have one
sign, and a mask that is drawn anew in backward, or not scaled as in forward, or a part that is missing, is off by its
share. For a random grad_output it must tell what the outputs do, which is little: so does no gradient that is wrong
everywhere by some percent. And along the gradient that it gives for a grad_output, the forward must change by that
gradient's square: so does no forward for terms that should have cancelled, as those of a batch's mean and variance for
a grad_output that is alike along the batch.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from grader.grading.candidate import Candidate
from grader.grading.compare.blocks import reals
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose
from grader.grading.random.forward_derivative import STEPS, along, gradients_for
from grader.verdict.models import Diagnosis

LEAST_SHARE = 0.25
"""Of the squares of all that move, and of a grad_output: where fewer outputs count, nothing is said."""
TOLERANCE = 2e-3
"""A mask of its own with probability p is off by p where it cuts all of the outputs."""
APART = 0.02
"""For a random grad_output, relative to what a gradient of that size tells of a random direction: its RMS error."""
ROUGH = 5e-4
"""Likewise, relative to what an output of that size does: rounding."""
SPARE = 1e-2
"""What the change along a gradient may be off by, relative to the gradient."""
SLACK = 1e-4
"""Relative to the norms of output and grad_output: what rounding makes of differences."""
TURNS = 9
"""How often one that is off is asked again: a kink between the steps of a few outputs may shift one answer."""
MAX_OPERANDS = 64
MAX_OUTPUTS = 4
"""That are asked one by one too, and dimensions along which a grad_output is all that varies."""
TINY = 1e-300
MAX_BYTES = 1 << 30
"""Of all outputs that are looked at: fewer operands where they are large."""


def differences(candidate: Candidate, case: Case, most: int = MAX_OPERANDS) -> Diagnosis | None:
    """Every operand's gradient, or `most` drawn at random. `case`: under a seed. A warning where nothing could be told.

    Raises Stopped.
    """
    wanted = [name for name, of in case.gradients.items() if of is not None and name in candidate.operands(case)]
    nbytes = 2 * len(STEPS) * sum(value.nbytes for value in case.cotangents.values())
    some = random.sample(wanted, min(len(wanted), max(1, min(most, MAX_BYTES // max(nbytes, 1)))))
    found = _along_any(candidate, case, some)
    return found if found and found.severity == "error" else _along_itself(candidate, case, some) or found


def _along_any(candidate: Candidate, case: Case, names: Sequence[str]) -> Diagnosis | None:
    outputs, seen = list(case.cotangents), False
    for part in (outputs, *([output] for output in outputs[:MAX_OUTPUTS] if len(outputs) > 1)):
        told = {name: answer for name in names if (answer := _told(candidate, case, name, part)) is not None}
        seen |= bool(told)
        for name in sorted(told, key=lambda name: -told[name].worst):
            if told[name].worst <= 1:
                break
            turns = [answer for _ in range(TURNS) if (answer := _told(candidate, case, name, part)) is not None]
            share = statistics.median(answer.share for answer in turns) if turns else 1.0
            if not abs(share - 1) <= TOLERANCE:
                return _wrong(case, name, f"along a random direction, it tells {share:.4g} times the change of", part)
            if turns and statistics.median(answer.apart for answer in turns) > 1:
                return _wrong(case, name, "along random directions, it is off from the change of", part)
    if seen or not names or any(_told(candidate, case, name, outputs) is not None for name in names[:TURNS]):
        return None
    message = (
        "under one seed, the outputs jump where an operand moves by a thousandth, so that no gradient could be held "
        f"against its own forward where the reference draws random numbers (variant {case.name})"
    )
    return diagnose("not_comparable", message, severity="warning")


class _Told(NamedTuple):
    """What a gradient tells of the outputs' change along a random direction."""

    share: float
    """By how many times, where that change is the grad_output."""
    apart: float
    """By how much too little or too much for a random grad_output, over what it may be."""

    @property
    def worst(self) -> float:
        return max(abs(self.share - 1) / TOLERANCE, self.apart)


def _told(candidate: Candidate, case: Case, name: str, outputs: Sequence[str]) -> _Told | None:
    """Of these outputs; None where that cannot be seen."""
    found = along(candidate, case, {name: torch.randn_like(case.operand(name).to(candidate.device.value))})
    if found is None:
        return None
    move, derivatives = found[0][name], found[1]
    aligned, squared, total = {}, 0.0, 0.0
    drawn = {}
    for output, of in derivatives.items():
        asked = torch.full_like(of.moves, output in outputs)
        aligned[output] = torch.where(asked & of.moves, of.value, 0.0)
        drawn[output] = torch.where(asked & of.steady, _drawn(case.cotangents[output], None), 0.0)
        squared += float(aligned[output].square().sum())
        total += float(of.value.square().sum()) if output in outputs else 0.0
    if not squared or squared < LEAST_SHARE * total:
        return None
    gradient = (gradients_for(candidate, case, aligned) or {}).get(name)
    other = (gradients_for(candidate, case, drawn) or {}).get(name)
    if gradient is None or other is None:
        return None
    due = sum(float((drawn[output] * of.value).sum()) for output, of in derivatives.items())
    noise = sum(
        float(drawn[output].norm()) * of.norm / math.sqrt(of.value.numel()) for output, of in derivatives.items()
    )
    least = APART * _norm(other) * _norm(move) / math.sqrt(move.numel()) + ROUGH * noise
    return _Told(_finite(_dot(gradient, move) / squared), _finite(abs(_dot(other, move) - due) / (least + TINY)))


def _along_itself(candidate: Candidate, case: Case, names: Sequence[str]) -> Diagnosis | None:
    """All operands at once; where that is off, each alone."""
    dimensions = max((value.dim() for value in case.cotangents.values()), default=0)
    for dimension in (None, *random.sample(range(dimensions), min(dimensions, MAX_OUTPUTS))):
        if _excess(candidate, case, names, dimension) <= 1:
            continue
        for name in names:
            if statistics.median(_excess(candidate, case, [name], dimension) for _ in range(TURNS)) > 1:
                alike = (
                    "" if dimension is None else f", for a grad_output that varies along dimension {dimension} alone"
                )
                return _wrong(case, name, f"along the gradient itself{alike}, it is not what it tells of", [])
    return None


def _excess(candidate: Candidate, case: Case, names: Sequence[str], dimension: int | None) -> float:
    """How far off the outputs' change along these gradients is, over what it may be; 0 where that cannot be seen."""
    drawn = {output: _drawn(value, dimension) for output, value in case.cotangents.items()}
    gradients = gradients_for(candidate, case, drawn) or {}
    directions = {name: value for name in names if (value := gradients.get(name)) is not None and bool(value.any())}
    if not directions or not all(bool(value.isfinite().all()) for value in directions.values()):
        return 0.0
    found = along(candidate, case, directions)
    if found is None:
        return 0.0
    move, derivatives = found
    kept = {output: torch.where(of.steady, drawn[output], 0.0) for output, of in derivatives.items()}
    if _squares(kept) < LEAST_SHARE * _squares(drawn):
        return 0.0
    again = gradients_for(candidate, case, kept) or {}
    told = sum(_dot(value, move[name]) for name in move if (value := again.get(name)) is not None)
    due = sum(float((kept[output] * of.value).sum()) for output, of in derivatives.items())
    size = sum(_norm(value) * _norm(move[name]) for name in move if (value := again.get(name)) is not None)
    slack = sum(float(kept[output].norm()) * of.norm for output, of in derivatives.items())
    return _finite(abs(told - due) / (SPARE * size + SLACK * slack + TINY))


def _wrong(case: Case, name: str, said: str, outputs: Sequence[str]) -> Diagnosis:
    of = outputs[0] if len(outputs) == 1 < len(case.cotangents) else "the outputs"
    return diagnose(
        "inconsistent_with_forward",
        f"gradient of `{case.operand_names[name]}` is not that of its own forward: under one seed, {said} {of}: use "
        "what forward drew, with forward's scale, and check the derivative of what train() alone computes",
    )


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf


def _drawn(cotangent: torch.Tensor, dimension: int | None) -> torch.Tensor:
    """A grad_output in float64, a complex number as two; alike along all dimensions but one where that is given."""
    like = reals(cotangent)
    if dimension is None or dimension >= cotangent.dim():
        return torch.randn_like(like)
    shape = [extent if axis == dimension else 1 for axis, extent in enumerate(like.shape)]
    return torch.randn(shape, dtype=like.dtype, device=like.device).expand(like.shape).contiguous()


def _dot(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((reals(one) * reals(other)).sum())


def _norm(value: torch.Tensor) -> float:
    return float(reals(value).norm())


def _squares(of: Mapping[str, torch.Tensor]) -> float:
    return sum(float(value.square().sum()) for value in of.values())
