"""Whether an error is a known term: a multiple of grad_output, of an operand or of their product."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch

from grader.grading.compare.scaling import least_squares, slope
from grader.grading.patterns.pattern import CORRELATION, FREE, Known, Pattern, Subject, dimensions, norm


def single_term(subject: Subject) -> Pattern | None:
    """The whole tensor, or its error, is a multiple of one known term."""
    if subject.right.numel() < FREE:
        return None
    some = bool(subject.actual.any())
    if some and subject.explained(subject.actual):
        text = f"is close to zero, at most {float(subject.actual.abs().max()):.4g}"
        return Pattern(text, "look for a term that is left out: it is nearly all of it")
    if (summed := _summed_too_far(subject)) is not None:
        return summed
    if some and subject.explained(subject.actual - subject.actual.mean()):
        value = f"{float(subject.actual.mean()):.4g}"
        return Pattern(f"is {value} in every element", "compute it from grad_output and the saved tensors")
    if int(subject.telling.sum()) < FREE:
        return None
    terms = list(_terms(subject))
    for term in terms:
        a = least_squares(subject.actual, term.value)
        if norm(term.value) and subject.explained(subject.actual - a * term.value):
            if _fits_right(subject, term):
                return None
            return Pattern(f"is {_multiple(a, term.name)} alone", _due_instead(subject, term, terms))
    for term in terms:
        a = least_squares(subject.error, term.value)
        if norm(term.value) and subject.explained(subject.error - a * term.value):
            return _too_much(a, term.name)
    return None


def _summed_too_far(subject: Subject) -> Pattern | None:
    """The right tensor, summed or averaged over some of its dimensions too."""
    dims = [dim for dim, extent in enumerate(subject.shape) if extent > 1]
    for count in range(1, len(dims) + 1):
        for chosen in itertools.combinations(dims, count):
            total = subject.right.sum(chosen, keepdim=True)
            for how, value in (("the sum", total), ("the mean", total / _length(subject, chosen))):
                if norm(value) and subject.explained(subject.actual - value):
                    over = dimensions(chosen)
                    text = f"is {how} over {over} of the right one, at each index there"
                    return Pattern(text, f"leave {over} out of {how}: each index there has one of its own")
    return None


def _fits_right(subject: Subject, term: Known) -> bool:
    """Whether the right tensor is a multiple of the term: then not the term is wrong, but what multiplies it."""
    b = least_squares(subject.right, term.value)
    return subject.explained(subject.right - b * term.value, subject.right)


def _due_instead(subject: Subject, term: Known, terms: Sequence[Known]) -> str:
    """The remedy for a tensor that is a multiple of one term alone."""
    for other in terms:
        if norm(other.value) and _fits_right(subject, other):
            due = _multiple(least_squares(subject.right, other.value), other.name)
            return f"return {due}" if other.name != term.name else f"return {due}, broadcast along another dimension"
    correlation = float((term.value * subject.right).sum()) / (norm(term.value) * norm(subject.right) + 1e-300)
    if abs(correlation) > CORRELATION:
        return f"apply the rest of the derivative: {term.name} is a part of it"
    return "compare its formula with the derivative's, term by term"


def _too_much(a: float, name: str) -> Pattern:
    if abs(a + 1) < 1e-3:
        return Pattern(f"lacks {name}", f"add {name}")
    if abs(a - 1) < 1e-3:
        return Pattern(f"has {name} too much", f"subtract {name}: it is added once too often, or does not belong there")
    if a > 0:
        return Pattern(f"has {_multiple(a, name)} too much", f"check the factor of {name}")
    return Pattern(f"lacks {_multiple(-a, name)}", f"check the factor or the sign of {name}")


def _multiple(a: float, name: str) -> str:
    if abs(a - 1) < 1e-3:
        return name
    return f"minus {name}" if abs(a + 1) < 1e-3 else f"{a:.4g} times {name}"


def missing_factor(subject: Subject) -> Pattern | None:
    """The tensor lacks a factor that is a known tensor, or has it once too often."""
    if int(subject.telling.sum()) < FREE:  # some known tensor has the ratio of any one element
        return None
    for known in subject.tensors:
        for value in _broadcasts(known.value, subject.shape):
            if not bool((value - value.flatten()[0]).any()):
                continue
            scaled = subject.right * value
            a = least_squares(subject.actual, scaled)
            if a and subject.explained(subject.actual - a * scaled):
                times = "" if abs(a - 1) < 1e-3 else f", times {a:.4g}"
                text = f"has the factor {known.name} once too often{times}"
                return Pattern(text, f"multiply by {known.name} once less")
            a = least_squares(subject.right, subject.actual * value)
            rest = subject.right - a * subject.actual * value
            if a and subject.explained(rest) and subject.explained(rest, subject.right):
                text = f"is the right one divided by {known.name}"
                return Pattern(text, f"multiply by {known.name}")
    return None


def grouped(subject: Subject) -> Pattern | None:
    """An offset, a multiple of a known tensor, both, or a factor, in each row, channel or the like."""
    dims = [dim for dim, extent in enumerate(subject.shape) if extent > 1]
    groups = [chosen for count in range(len(dims), 0, -1) for chosen in itertools.combinations(dims, count)]
    groups.sort(key=lambda chosen: -_length(subject, chosen))
    for chosen in groups:
        each, length = _each(subject, chosen), _length(subject, chosen)
        if length < FREE:
            continue
        mean = subject.error.mean(chosen, keepdim=True)
        if subject.explained(subject.error - mean):
            amount = f", {float(mean):.4g}" if mean.numel() == 1 else ""
            where = f"a constant, or a sum or mean over {dimensions(chosen)}"
            remedy = f"look for {where}, that is missing, too much or wrongly scaled"
            return Pattern(f"is off by the same amount {each}{amount}", remedy)
        a = slope(subject.actual, subject.right, chosen)
        if len(groups) > 1 and _several(subject, chosen) and subject.explained(subject.actual - a * subject.right):
            return _factor(a[(subject.right != 0).sum(chosen, keepdim=True) > 0], each)
        if length < 2 * FREE:
            continue
        for known in subject.like():
            pattern = _multiples(subject, known, chosen, each)
            if pattern is not None:
                return pattern
    return None


def _several(subject: Subject, chosen: tuple[int, ...]) -> bool:
    """Whether most groups with a wrong element have FREE that are not zero: a factor explains any one element."""
    found = subject.telling.sum(chosen, keepdim=True)
    return float(found[subject.wrong.any(chosen, keepdim=True)].double().median()) >= FREE


def _multiples(subject: Subject, known: Known, chosen: tuple[int, ...], each: str) -> Pattern | None:
    """The error is b times a known tensor, or a + b times, with a and b for each group."""
    over = f"a sum over {dimensions(chosen)} times {known.name}"
    b = slope(subject.error, known.value, chosen)
    if subject.explained(subject.error - b * known.value):
        if b.numel() == 1:
            return None if _fits_right(subject, known) else _too_much(float(b), known.name)
        text = f"is off by a multiple of {known.name} {each}"
        return _gain_left_out(subject, known, b) or Pattern(
            text, f"look for {over} that is missing or has another factor"
        )
    centred = known.value - known.value.mean(chosen, keepdim=True)
    b = slope(subject.error, centred, chosen)
    rest = subject.error - b * centred
    if subject.explained(rest):
        text = f"is off by a multiple of {known.name} minus its mean {each}"
        return Pattern(text, "look for the term of the variance: it is missing or has another factor or sign")
    if subject.explained(rest - rest.mean(chosen, keepdim=True)):
        text = f"is off by a constant plus a multiple of {known.name} {each}"
        return Pattern(text, "look for the terms of the mean and of the variance")
    return None


def _gain_left_out(subject: Subject, term: Known, multiples: torch.Tensor) -> Pattern | None:
    """The error is (1 - gain) times a term for a known gain, which the tensor thus takes as 1."""
    for known in subject.tensors:
        for gain in _broadcasts(known.value, tuple(multiples.shape)):
            if subject.explained((multiples - (1 - gain)) * term.value):
                text = f"has {term.name} where the reference has {term.name} * {known.name}"
                return Pattern(text, f"multiply it by {known.name}")
    return None


def _factor(a: torch.Tensor, each: str) -> Pattern:
    """A factor for each group that has one: anything is a multiple of zeros."""
    text = f"is off by one factor {each}, from {float(a.min()):.4g} to {float(a.max()):.4g}"
    return Pattern(text, "look for a factor that differs there: it is missing, applied twice, or read at another index")


def _terms(subject: Subject) -> Iterator[Known]:
    """Known terms in this shape, each linear in a grad_output or the gradient of another operand."""
    shape = subject.shape
    factors = [None, *subject.tensors]
    for grad, other in itertools.product(subject.grad_outputs, factors):
        for value in [None] if other is None else _broadcasts(other.value, tuple(grad.value.shape)):
            term = grad.value if value is None else grad.value * value
            name = grad.name if other is None else f"{grad.name} * {other.name}"
            for reduced, over in _reduced(term, shape):
                yield Known(f"the sum over {dimensions(over)} of {name}" if over else name, reduced)
    for grad, other in itertools.product(subject.grad_outputs, subject.tensors):
        yield from _products(grad, other, shape)
    for name, expected in subject.case.gradients.items():
        if name == subject.name or expected is None or expected.dtype.is_complex:
            continue
        if expected.reference64.numel() == subject.right.numel():
            value = subject.beside(expected.reference64).reshape(shape)
            yield Known(f"the gradient of `{subject.label(name)}`", value)


def _products(grad: Known, other: Known, shape: tuple[int, ...]) -> Iterator[Known]:
    """Matrix products of a grad_output and another tensor, each plain or transposed."""
    g, t = grad.value, other.value
    if g.dim() < 2 or t.dim() < 2:
        return
    if len(shape) == 2 and g.dim() > 2:
        g, t = g.reshape(-1, g.shape[-1]), t.reshape(-1, t.shape[-1])
    ways = itertools.product(((g, grad.name), (g.mT, f"{grad.name}^T")), ((t, other.name), (t.mT, f"{other.name}^T")))
    for (a, a_name), (b, b_name) in ways:
        for one, two, text in ((a, b, f"{a_name} @ {b_name}"), (b, a, f"{b_name} @ {a_name}")):
            batched = one.shape[:-2] == two.shape[:-2] or 2 in (one.dim(), two.dim())
            # Before it is made: of two rows of 65535, the other product has 4 billion elements.
            made = (*max(one.shape[:-2], two.shape[:-2], key=len), one.shape[-2], two.shape[-1])
            if one.shape[-1] == two.shape[-2] and batched and made == shape:
                yield Known(text, one @ two)


def _broadcasts(value: torch.Tensor, shape: tuple[int, ...]) -> Iterator[torch.Tensor]:
    """The tensor in a larger shape, along each choice of dimensions with its extents."""
    extents = [extent for extent in value.shape if extent > 1]
    if not extents or len(extents) > len(shape):
        return
    for chosen in itertools.combinations(range(len(shape)), len(extents)):
        if [shape[dim] for dim in chosen] == extents:
            yield value.reshape([shape[dim] if dim in chosen else 1 for dim in range(len(shape))]).expand(shape)


def _reduced(value: torch.Tensor, shape: tuple[int, ...]) -> Iterator[tuple[torch.Tensor, tuple[int, ...]]]:
    """The tensor in this shape: as it is, summed over the other dimensions, or repeated along them."""
    if tuple(value.shape) == shape:
        yield value, ()
        return
    extents = [extent for extent in shape if extent > 1]
    if extents and len(extents) <= value.dim():
        for chosen in itertools.combinations(range(value.dim()), len(extents)):
            if [value.shape[dim] for dim in chosen] == extents:
                over = tuple(dim for dim in range(value.dim()) if dim not in chosen)
                yield (value.sum(over) if over else value).reshape(shape), over
    elif value.numel() < torch.Size(shape).numel():
        yield from ((wide, ()) for wide in _broadcasts(value, shape))


def _length(subject: Subject, dims: Sequence[int]) -> int:
    return torch.Size([subject.shape[dim] for dim in dims]).numel()


def _each(subject: Subject, dims: Sequence[int]) -> str:
    """`in each row`, `for each index of dimension 1`, `everywhere`, for groups along `dims`."""
    left = [dim for dim in range(len(subject.shape)) if dim not in dims and subject.shape[dim] > 1]
    if not left:
        return "everywhere"
    if len(subject.shape) == 2:
        return f"within each {'row' if left == [0] else 'column'}"
    return f"within each index of {dimensions(left)}"
