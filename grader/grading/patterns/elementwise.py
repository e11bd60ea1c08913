"""Outputs that are functions of one tensor, and gradients of single elements of grad_output."""

from __future__ import annotations

import torch

from grader.grading.compare.nonsmooth import MIN_ELEMENTS
from grader.grading.compare.scaling import slope
from grader.grading.patterns.pattern import FIT, FREE, Pattern, Subject


def other_function(subject: Subject) -> Pattern | None:
    """An output is a function of one known tensor of this shape, and the reference's is another one."""
    for known in subject.tensors if subject.right.numel() >= MIN_ELEMENTS else ():
        if tuple(known.value.shape) == subject.shape:
            at, order = known.value.flatten().sort()
            actual, right = subject.actual.flatten()[order], subject.right.flatten()[order]
            if _smooth(at, actual, subject.wrong.flatten()[order]) and _smooth(at, right):
                worst = int((actual - right).abs().argmax())
                figures = f"{float(actual[worst]):.6g} for {float(right[worst]):.6g}"
                text = f"is a wrong function of {known.name}, off most at {float(at[worst]):.4g}: {figures}"
                return Pattern(text, f"check what the kernel does with {known.name} near that value")
    return None


def _smooth(at: torch.Tensor, value: torch.Tensor, chosen: torch.Tensor | None = None) -> bool:
    """Whether most values lie on the line between their neighbours: a function, up to a few jumps.

    With `chosen`, most of those values.
    """
    width = at[2:] - at[:-2]
    share = (at[1:-1] - at[:-2]) / width.where(width > 0, 1.0)
    gap = (value[1:-1] - (value[:-2] + share * (value[2:] - value[:-2]))).abs()
    away = (value - value.median()).abs()
    # A few large values among many small ones make no line of them, nor do zeros between values that are scattered.
    spread = float(away.median()) or float(away.mean())
    gap = gap[away[1:-1] > 0] if chosen is None else gap[(away[1:-1] > 0) & chosen[1:-1]]
    return spread > 0 and len(gap) > 0 and float(gap.median()) <= 20 * FIT * spread


def overwritten(subject: Subject) -> Pattern | None:
    """Each wrong element is one element of grad_output, where the reference adds several up."""
    chosen, due = subject.actual[subject.wrong], subject.right[subject.wrong]
    lacking = (due - chosen)[chosen != 0].float()
    placed, chosen = subject.wrong & (subject.actual != 0), chosen[chosen != 0].float()
    if len(chosen) < FREE or not bool(subject.actual[~subject.wrong].any()) or not bool(due.all()):
        return None
    if any(
        subject.explained(subject.right - slope(subject.right, subject.actual, [dim]) * subject.actual)
        for dim, extent in enumerate(subject.shape)
        if extent >= FREE
    ):
        return None  # it is one element there too, times a factor: a mean
    for grad in subject.grad_outputs:
        own = grad.value[placed] if tuple(grad.value.shape) == subject.shape else None
        if own is not None and subject.explained(subject.actual[placed] - own, subject.error[placed]):
            return None  # nothing was overwritten: it is that grad_output, at the same positions
        if grad.value.numel() > 1 and bool(torch.isin(chosen, grad.value.float()).all()):
            others = (known for known in subject.grad_outputs if known is not grad)
            other = next((known for known in others if bool(torch.isin(lacking, known.value.float()).all())), None)
            if other is not None:
                return Pattern(f"lacks {other.name} wherever it is wrong", f"add what {other.name} contributes")
            text = f"holds a single element of {grad.name} wherever it is wrong"
            return Pattern(text, "add up the contributions to one element (+=, atomicAdd): each overwrites the last")
    return None
