"""Says how a buffer was updated wrongly: not at all, with another momentum, from other statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import torch

from grader.grading.candidate import names
from grader.grading.compare.scaling import REDUCED_PRECISION
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.noise import is_float
from grader.grading.oracle.oracle import Oracle

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
    clauses = [f"{names(group)} {text}" for text, group in by_text.items()]
    remedies = dict.fromkeys(update.remedy for update in found.values())
    return "; ".join(clauses), "; ".join(remedies) or USUAL


def _update(case: Case, oracle: Oracle | None, name: str, actual: torch.Tensor, right: torch.Tensor) -> Update:
    before = case.state[name].cpu()
    if torch.equal(actual.to(before.dtype), before):
        return Update("as before the forward, not updated at all", "update it in every forward in train()")
    if not is_float(before):
        return Update(
            f"off by up to {float((actual.double() - right).abs().max()):.4g}", "update it once in each forward"
        )
    before, actual, right = before.double(), actual.double(), right.double()
    if torch.equal(right, before):
        return Update("changed, where the reference leaves it", "update it in train() only")
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
    return (
        _other_momentum(share * momentum, momentum) if apart <= other_apart else _other_statistic(case, right, multiple)
    )


def _other_momentum(own: float, momentum: float) -> Update:
    """The buffer moved towards the right statistics, by another share."""
    for times in (2, 3):
        if abs(own - (1 - (1 - momentum) ** times)) < REDUCED_PRECISION:
            return Update(f"updated {times} times in one forward", "update it once in each forward")
    text = f"updated with momentum {own:.4g} for {momentum:.4g}"
    if abs(own - (1 - momentum)) < REDUCED_PRECISION:
        return Update(f"{text}, that is (1 - momentum)", "swap the weights: (1 - momentum) * old + momentum * new")
    return Update(text, f"use momentum {momentum:.4g}")


def _other_statistic(case: Case, right: torch.Tensor, factor: float) -> Update:
    """The share of the old value is right, and the statistic is a multiple of the right one."""
    tensors = (*case.inputs, *(expected.reference64 for expected in case.outputs.values()))
    sizes = {value.numel() / right.numel() for value in tensors if isinstance(value, torch.Tensor)}
    count = 1 / (1 - factor) if factor < 1 else factor / (factor - 1)
    text = f"updated from {factor:.6g} times the reference's statistic"
    if round(count) in sizes and abs(count - round(count)) < 0.02 * count**0.5:
        ratio = "(n - 1)/n" if factor < 1 else "n/(n - 1)"
        ours, theirs = ("biased", "unbiased") if factor < 1 else ("unbiased", "biased")
        text += f", which is {ratio} for n = {round(count)}: the {ours} variance for the {theirs}"
        return Update(text, f"update it with the {theirs} variance")
    return Update(text, "compute the statistic, and weigh it, as the reference does")


def _momentum(oracle: Oracle, case: Case, name: str, right: torch.Tensor) -> float | None:
    """The weight of new statistics: 1 less what a change of the old value leaves; None if it is no moving average."""
    moved = {**case.state, name: case.state[name] + 1}
    after = questions.updated_buffers(oracle, replace(case, state=moved))[name].reference64.cpu()
    kept = after.double() - right.double()
    mean = float(kept.mean())
    steady = float((kept - mean).abs().max()) < REDUCED_PRECISION
    return 1 - mean if steady and 0 < 1 - mean < 1 else None


def _fit(of: torch.Tensor, to: torch.Tensor) -> tuple[float, float]:
    """The a in of = a * to, and the relative residual; infinite for a single element, which always fits."""
    size = float((to * to).sum())
    a = float((of * to).sum()) / size if size else 0.0
    residual = float((of - a * to).norm()) / max(float(of.norm()), 1e-300)
    return a, residual if of.numel() > 1 else math.inf
