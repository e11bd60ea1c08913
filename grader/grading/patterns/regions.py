"""Regions where a tensor is wrong: rows, a border, a range of values, or where one side is zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch

from grader.grading.compare.scaling import factor_text, scale_of
from grader.grading.oracle.case import is_input
from grader.grading.patterns.indices import are_regular, hit_indices, holding, named_indices, only_there
from grader.grading.patterns.pattern import FIT, FREE, Pattern, Region, Subject, dimensions
from grader.grading.patterns.value_regions import by_row_value, by_value, named_by_index

ONE_ELEMENT = (
    "look for what holds there alone: a bound, a tie, a rare value or length, or a second thread that writes it"
)
RARE = "look for what holds there alone: a bound, a tie, a rare value or length"


def region(subject: Subject) -> Pattern | None:
    """A region outside of which every element is right, and inside of which one thing stands."""
    return _region(subject, _regions(subject), plain=False)


def border(subject: Subject) -> Pattern | None:
    """A border, away from which every element is right."""
    return _region(subject, _outside_box(subject), plain=True)


def vague_region(subject: Subject) -> Pattern | None:
    """A region outside of which every element is right, and inside of which nearly all are wrong somehow.

    Or indices outside of which wrong elements would lie as well, if they lay anywhere; or a single element.
    """
    return _region(subject, _regions(subject), plain=True) or _scattered(subject) or _single(subject)


def at_zeros(subject: Subject) -> Pattern | None:
    """All wrong elements are zero on one side, as behind a mask or bound that the other does not have."""
    wrong, count = subject.wrong, int(subject.wrong.sum())
    nonzero = (subject.right != 0) & (subject.actual != 0) & ~wrong
    if count < FREE or int(nonzero.sum()) < FREE:
        return None
    what = f"in {count} of {wrong.numel()} elements"
    if not bool((wrong & (subject.right != 0)).any()):
        remedy = "leave zero what a mask, a bound or an ignored index leaves out in the reference"
        text = f"is not zero {what} that are zero in the reference, and right elsewhere"
        return Pattern(text, remedy, vague=True, by_value=True)
    if not bool((wrong & (subject.actual != 0)).any()):
        remedy = "compute those elements: a mask or a bound leaves them out that the reference does not have"
        text = f"is zero {what} that are not zero in the reference, and right elsewhere"
        return Pattern(text, remedy, vague=True, by_value=True)
    return None


def only_region(subject: Subject) -> str | None:
    """The place of all wrong elements, such as "at the last 3 of 131 columns"; None without one.

    Nearly all elements there are wrong.
    """
    count = int(subject.wrong.sum())
    found = _box(subject) if 0 < count < subject.wrong.numel() and subject.wrong.dim() else ()
    return next((place.text for place in found if nearly(count, int(place.inside.sum()))), None)


def _single(subject: Subject) -> Pattern | None:
    """The only wrong element of a tensor that has many."""
    if int(subject.wrong.sum()) != 1 or int(subject.telling.sum()) < FREE or not _clear(subject, subject.wrong):
        return None
    at = [int(index) for index in subject.wrong.nonzero()[0]]
    return Pattern(f"is wrong in the element {at} alone", ONE_ELEMENT, vague=True)


def _scattered(subject: Subject) -> Pattern | None:
    """Indices that hold all wrong elements, some in each dimension that tells anything."""
    hit = holding(subject.wrong, subject.telling)
    text = only_there(hit)  # how many is said for the whole tensor, by the tolerance, which counts others
    if text is None or not _clear(subject, _mask(hit, subject.wrong)):
        return None
    return Pattern(text, _box_remedy(subject, hit), vague=True)


def _clear(subject: Subject, inside: torch.Tensor) -> bool:
    """Whether the errors outside are none, and not just smaller, as of small elements or those with fewer terms."""
    error, outside = subject.error.abs(), subject.telling & ~inside
    relative = (error / subject.right.abs())[outside].nan_to_num(0.0, math.inf)
    largest = float(error[outside].max()) if bool(outside.any()) else 0.0
    return largest <= 0.1 * float(error[subject.wrong].median()) and (
        not len(relative) or float(relative.median()) <= FIT
    )


def _region(subject: Subject, regions: Iterator[Region], *, plain: bool) -> Pattern | None:
    wrong = subject.wrong
    count, elements = int(wrong.sum()), wrong.numel()
    if not 0 < count < elements or not wrong.dim():
        return None
    either = subject.telling
    for text, inside, remedy, by_index in regions:
        size = int((inside & either).sum())
        if bool((wrong & ~inside).any()) or not nearly(count, size) or bool((inside | ~either).all()):
            continue
        few_right = int((either & ~inside).sum()) < FREE if by_index else nearly(size, elements)
        if plain and few_right:
            continue  # which may be so by chance: some value is the smallest
        state, better = _state(subject, inside)
        if better or (plain and (not by_index or _clear(subject, inside))):
            what = f"is {state} {text}, and right elsewhere"
            return Pattern(what, better or remedy, vague=not better, by_value=not by_index)
    return None


def nearly(count: int, total: int) -> bool:
    """Whether at most an eighth is missing: some elements of a region are right by chance."""
    return 8 * count >= 7 * total


def _regions(subject: Subject) -> Iterator[Region]:
    """Candidates, the plainest first."""
    yield from named_by_index(subject)
    yield from by_row_value(subject)
    yield from _box(subject)
    yield from _outside_box(subject)
    yield from by_value(subject)


def _state(subject: Subject, inside: torch.Tensor) -> tuple[str, str]:
    """The values inside, and the remedy that follows from them, if one does."""
    actual, right = subject.actual[inside], subject.right[inside]
    if not bool(actual.any()):
        return "zero", "write those elements: no thread does, or a mask leaves them out"
    if not bool(right.any()):
        return "not zero, as it is in the reference,", "leave those elements zero, as the reference does"
    factor = scale_of(actual, right)
    if factor is not None and factor_text(factor) == "-1":
        return "of the wrong sign", "flip the sign there"
    if factor is not None and len(right) >= FREE:
        return f"{factor_text(factor)} times the reference's", "look for that factor there"
    error = subject.error[inside]
    mean = float(error.mean())
    if len(right) >= FREE and subject.explained(error - mean, error):
        return f"off by {mean:.4g} in each element", f"subtract {mean:.4g} there"
    return "wrong", ""


def _box(subject: Subject) -> Iterator[Region]:
    """The smallest box of indices around the wrong elements."""
    hit = hit_indices(subject.wrong)
    count = int(subject.wrong.sum())
    kept = [mask if are_regular(mask, int(mask.sum()) * FREE <= count) else torch.ones_like(mask) for mask in hit]
    text = [named_indices(dim, mask, subject.shape) for dim, mask in enumerate(kept) if not bool(mask.all())]
    if text:
        yield Region(f"at {' and '.join(text)}", _mask(kept, subject.wrong), _box_remedy(subject, kept))


def _box_remedy(subject: Subject, kept: Sequence[torch.Tensor]) -> str:
    """A short end points to a loop's bounds, a half to what is made of it alone, as by a gate.

    So do parts of a joined tensor, as of queries, keys and values, and one of a few rows of a parameter. A start that
    alone is right points to what has no effect there, and a place within three dimensions to a value.
    """
    chosen = [mask for mask in kept if not bool(mask.all())]
    rows = kept[0]
    if len(chosen) == 1 and int(rows.sum()) == 1 and 2 < len(rows) <= FREE and not is_input(subject.name):
        return f"check what is computed from that one of {len(rows)} alone, as of a gate or a head"
    if len(chosen) > 2 and any(int(mask.sum()) == 1 for mask in chosen):
        return RARE
    if any(
        2 * int(mask.sum()) == len(mask) > 2
        and (bool(mask[: len(mask) // 2].all()) or bool(mask[len(mask) // 2 :].all()))
        for mask in chosen
    ):
        return "check what is computed from that half alone"
    for parts, among in ((3, "queries, keys and values"), (4, "the gates of a cell")):
        if len(chosen) == 1 and _is_of_parts(chosen[0], parts):
            return f"check what is computed from those of {parts} equal parts alone, as of {among}"
    if any(
        not bool(mask[0]) and 2 * int(mask.sum()) <= len(mask) and bool(mask[-int(mask.sum()) :].all())
        for mask in chosen
    ):
        return "check the loop bounds there" if len(chosen) == 1 else "check lengths, masks and loop bounds there"
    if len(chosen) == 1 and bool(chosen[0][1:].all()):
        return "look for what has no effect at index 0, such as earlier indices, or is read at index 0 for all of them"
    if len(chosen) == 1 and nearly(int(chosen[0].sum()), len(chosen[0])):
        return "look for a term that has no effect at the few other indices, as where padding enters"
    return "check how those indices are handled"


def _is_of_parts(chosen: torch.Tensor, parts: int) -> bool:
    """Whether they are whole ones of so many equal parts, of four indices at least."""
    if len(chosen) % parts or len(chosen) < 4 * parts:
        return False
    within = chosen.view(parts, -1)
    return bool((within.all(1) == within.any(1)).all())


def _outside_box(subject: Subject) -> Iterator[Region]:
    """Everything but a box: right inside, such as away from a border."""
    kept = hit_indices(subject.telling & ~subject.wrong)
    inner = [dim for dim, mask in enumerate(kept) if not bool(mask.all())]
    if not inner or not all(bool(mask.any()) for mask in kept):
        return
    low = [int(kept[dim].nonzero()[0]) for dim in inner]
    high = [len(kept[dim]) - 1 - int(kept[dim].nonzero()[-1]) for dim in inner]
    # Of six samples, two that are wrong for another reason are the first and the last once in 15 times.
    if len(inner) == 1 and math.comb(len(kept[inner[0]]), low[0] + high[0]) < 16 * FREE:
        return
    if len(inner) > 1 and inner[0] == 0 and len(subject.shape) > 2:
        return  # of samples, and no border
    sides = zip(inner, low, high, strict=True)
    if not all(bool(kept[dim][first : len(kept[dim]) - last].all()) for dim, first, last in sides):
        return
    inside = ~_mask(kept, subject.wrong)
    remedy = "check how padding enters, as in an average's divisor: the elements that no padding touches are right"
    if low == high and min(low) > 0:
        width = f"{low[0]} wide" if len(set(low)) == 1 else "of the widths " + " and ".join(map(str, low))
        centre = all(bool(kept[dim].sum() == 1) for dim in inner)
        dims = dimensions(inner)
        text = f"in all but the centre along {dims}" if centre else f"on the border along {dims}, {width}"
        yield Region(text, inside, remedy)
    elif (
        (len(inner) > 1 or min(low[0], high[0]) > 0)  # else the box around the wrong ones says it
        and all(2 * int(kept[dim].sum()) >= len(kept[dim]) for dim in inner)
        and int((subject.telling & ~inside).sum()) >= FREE  # fewer are right by chance
    ):
        text = "on the border: at " + " or ".join(named_indices(dim, ~kept[dim], subject.shape) for dim in inner)
        remedy = remedy if any(low) else "check the loop bounds and masks at those ends, or how padding enters there"
        yield Region(text, inside, remedy)


def _mask(kept: Sequence[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor whose indices are all kept."""
    inside = torch.ones_like(like, dtype=torch.bool)
    for dim, mask in enumerate(kept):
        inside &= mask.to(like.device).view(-1, *[1] * (like.dim() - dim - 1))
    return inside
