"""Finds elements that no thread writes, or several in any order: equal calls differ there."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader.grading.compare.expected import Expected
from grader.grading.oracle.case import Case
from grader.grading.patterns.pattern import FREE, MAX_ELEMENTS, Pattern, Subject
from grader.grading.patterns.regions import nearly, only_region
from grader.grading.patterns.value_regions import named_by_index


def unwritten(case: Case, name: str, expected: Expected, runs: Sequence[torch.Tensor]) -> Pattern | None:
    """The place of all elements that are wrong in any of several equal calls; None without one.

    Its text follows "is wrong". `name` is the operand's in the case, or the output's.
    """
    if not expected.dtype.is_floating_point or not 0 < runs[0].numel() <= MAX_ELEMENTS:
        return None
    right = expected.reference64.cpu().double()
    each = []
    for run in runs:
        actual = run.detach().cpu().double().view(right.shape)
        finite = actual.isfinite()
        each.append(Subject(case, torch.where(finite, actual, right), expected, name).wrong | ~finite)
    wrong = torch.stack(each).any(0)
    # A race loses others each time. Memory may hold the right values of an earlier call.
    if any(0 < 2 * int(one.sum()) < int(wrong.sum()) for one in each):
        return None
    subject = Subject(case, torch.where(wrong, torch.inf, right), expected, name)
    # A race may by chance have left alone fewer elements than that, or zeros.
    if int((subject.telling & ~wrong).sum()) < FREE:
        return None
    count = int(subject.wrong.sum())
    for region in named_by_index(subject):
        if int((subject.wrong & region.inside).sum()) == count and nearly(count, int(region.inside.sum())):
            return Pattern(f"{region.text} only, where each call finds something else", region.remedy)
    at = only_region(subject)
    if at is None:
        return None
    remedy = "write those elements: no thread does, or a mask leaves them out; if one does, look for a race there"
    return Pattern(f"{at} only, where each call finds something else", remedy)
