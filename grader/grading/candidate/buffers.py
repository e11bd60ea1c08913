"""Says how a buffer was updated wrongly: not at all, with another momentum, from other statistics."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from grader.grading.compare import tolerance
from grader.grading.compare.scaling import REDUCED_PRECISION, least_squares
from grader.grading.compare.tolerance import BASELINE_FACTOR_MAX
from grader.grading.messages import in_backticks
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import is_float

USUAL = "update buffers as the reference does"


class Update(NamedTuple):
    """A description of a wrong update."""

    text: str
    """Follows the buffer's name."""
    remedy: str


def explain_buffers(
    case: Case, actual: Mapping[str, torch.Tensor | None], oracle: Oracle | None = None
) -> tuple[str, str]:
    """(by how much, remedy) for the buffers that differ after a forward of the case.

    The momentum is found only with the oracle, which runs the reference on other values.
    """
    found: dict[str, Update] = {}
    for name, value in actual.items():
        if value is not None:
            right = case.buffers[name].reference64.cpu()
            found[name] = _update(case, oracle, name, value.cpu().view(right.shape), right)
    by_text: dict[str, list[str]] = {}
    for name, update in found.items():
        by_text.setdefault(update.text, []).append(name)
    clauses = [f"{in_backticks(group)} {text}" for text, group in by_text.items()]
    remedies = dict.fromkeys(update.remedy for update in found.values())
    return "; ".join(clauses), "; ".join(remedies) or USUAL


def uses_updated_buffers(oracle: Oracle, case: Case) -> bool:
    """Whether the outputs are those of eval() with the buffers as updated: train() does nothing else."""
    if not case.training or not case.updated_buffers:
        return False
    after = {name: case.buffers[name].reference64.to(case.state[name]) for name in case.updated_buffers}
    other = replace(case, state={**case.state, **after}, training=False)
    found = variations.outputs_of(oracle, other)
    return all(
        tolerance.passes(expected, found[name].reference64.to(expected.dtype))
        for name, expected in case.outputs.items()
    )


def _update(case: Case, oracle: Oracle | None, name: str, actual: torch.Tensor, right: torch.Tensor) -> Update:
    before = case.state[name].cpu()
    if torch.equal(actual.to(before.dtype), before):
        return Update("as before the forward, not updated at all", "update it in every forward in train()")
    counts = not is_float(before)
    before, actual, right = before.double(), actual.double(), right.double()
    if torch.equal(right, before):
        return Update("changed, where the reference leaves it", "update it in train() only")
    if counts:
        return Update(f"off by up to {float((actual - right).abs().max()):.4g}", "update it once in each forward")
    share, apart = _fit(actual - before, right - before)
    momentum = None if oracle is None else _momentum(oracle, case, name, right)
    if momentum is None:
        text = f"moved {share:.4g} times as far as the reference's" if apart < REDUCED_PRECISION else ""
        return Update(text or f"off by up to {float((actual - right).abs().max()):.4g}", USUAL)
    ours, theirs = (before + (after - before) / momentum for after in (actual, right))
    multiple, other_apart = _fit(ours, theirs)
    if min(apart, other_apart) > REDUCED_PRECISION:
        more, beside = _fit(actual - right, before)
        if beside < REDUCED_PRECISION:
            kept = 1 - momentum
            text = f"updated with {kept + more:.4g} of the old value for {kept:.4g}"
            return Update(text, f"multiply the old value by {kept:.4g}")
        largest = float((ours - theirs).abs().max())
        return Update(f"updated from other statistics, off by up to {largest:.4g}", "compute them over the same set")
    # Beside zeros, both fit; the usual update has shown the momentum.
    if apart <= other_apart and bool(before.any()):
        return _other_momentum(share * momentum, momentum)
    return _other_statistic(case, ours, theirs, multiple)


def _other_momentum(own: float, momentum: float) -> Update:
    """The buffer moved towards the right statistics, by another share."""
    for times in (2, 3):
        if momentum < 1 and abs(own - (1 - (1 - momentum) ** times)) < REDUCED_PRECISION:
            return Update(f"updated {times} times in one forward", "update it once in each forward")
    text = f"updated with momentum {own:.4g} for {momentum:.4g}"
    if abs(own - (1 - momentum)) < REDUCED_PRECISION:
        return Update(f"{text}, that is (1 - momentum)", "swap the weights: (1 - momentum) * old + momentum * new")
    return Update(text, f"use momentum {momentum:.4g}")


def _other_statistic(case: Case, ours: torch.Tensor, theirs: torch.Tensor, factor: float) -> Update:
    """The share of the old value is right, and the statistic is a multiple of the right one."""
    relative = ours / theirs - 1
    off = relative.isfinite() & (relative.abs() > relative.abs().nan_to_num(0, 0, 0).max() / 2)
    part, some = None if bool(off.all()) else one_factor(relative[off]), ""
    if part is not None:
        factor, some = part, f" in {int(off.sum())} of {off.numel()} elements"
    digits = 4 if abs(factor - 1) > REDUCED_PRECISION else 6  # n/(n - 1) of a large set is close to 1
    text = f"updated from {factor:.{digits}g} times the reference's statistic{some}"
    if factor == 1:
        return Update(text, "compute the statistic, and weigh it, as the reference does")
    count = 1 / (1 - factor) if factor < 1 else factor / (factor - 1)
    nearest = min(_reduced_sizes(case), key=lambda size: abs(size - count))
    if abs(count - nearest) < 0.02 * nearest:
        ratio = "(n - 1)/n" if factor < 1 else "n/(n - 1)"
        wrong, due = ("biased", "unbiased") if factor < 1 else ("unbiased", "biased")
        text += f", which is {ratio} for n = {nearest}: the {wrong} variance for the {due}"
        return Update(text, f"update it with the {due} variance")
    return Update(text, "compute the statistic, and weigh it, as the reference does")


def _reduced_sizes(case: Case) -> set[int]:
    """The numbers of elements that a reduction over some dimensions of an input or output may have."""
    shapes = [value.shape for value in case.inputs if isinstance(value, torch.Tensor)]
    shapes += [torch.Size(expected.shape) for expected in case.outputs.values()]
    return {
        math.prod(chosen)
        for shape in shapes
        for count in range(len(shape) + 1)
        for chosen in itertools.combinations(shape, count)
    }


def _momentum(oracle: Oracle, case: Case, name: str, right: torch.Tensor) -> float | None:
    """The weight of new statistics: 1 less what a change of the old value leaves; None if it is no moving average."""
    moved = {**case.state, name: case.state[name] + 1}
    after = variations.buffers_for(oracle, replace(case, state=moved))[name].reference64.cpu()
    kept = after.double() - right.double()
    mean = float(kept.mean())
    steady = float((kept - mean).abs().max()) < REDUCED_PRECISION
    return min(1 - mean, 1.0) if steady and 0 < 1 - mean < 1 + REDUCED_PRECISION else None


def one_factor(deviations: torch.Tensor) -> float | None:
    """The factor of elements that deviate from the right ones by these shares, if it is one for all."""
    if deviations.numel() < 2:
        return None
    mean = float(deviations.mean())
    # Rounding varies by more than its mean.
    return 1 + mean if float(deviations.std()) * BASELINE_FACTOR_MAX < abs(mean) else None


def _fit(tensor: torch.Tensor, basis: torch.Tensor) -> tuple[float, float]:
    """The a in tensor = a * basis, and the relative residual; infinite for a single element, which always fits."""
    a = least_squares(tensor, basis)
    residual = float((tensor - a * basis).norm()) / max(float(tensor.norm()), 1e-300)
    return a, residual if tensor.numel() > 1 else math.inf
