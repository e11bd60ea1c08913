"""Recognises errors that are those of operands, intermediate results or sums in a narrower type.

In a long sum of positive products, such errors cancel below any bound on the norm, as those of 4096 numbers do. Their
signs and sizes still follow those of the reference with the same rounding, which float32's do not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch

from grader.grading.compare import nonsmooth, tolerance
from grader.grading.compare.blocks import kth_smallest
from grader.grading.compare.expected import EPSILON, Expected
from grader.grading.compare.narrow_types import is_narrow, spacing
from grader.grading.compare.nonsmooth import MIN_ELEMENTS
from grader.grading.compare.scaling import least_squares, slope
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.roundings import NarrowFormat, Rounded, roundings
from grader.grading.oracle.values import OTHER_DRAWS, is_float, with_moved
from grader.grading.patterns.pattern import CORRELATION, FREE, Pattern, Subject, norm
from grader.machine.backends import backend
from grader.protocol import dtype_name
from grader.verdict.precision import TF32_BITS, Precision

FORMATS = (NarrowFormat.of_type(torch.bfloat16), NarrowFormat.of_type(torch.float16), NarrowFormat(TF32_BITS, cut=True))
"""Those of bfloat16, of float16 and of what tensor cores read."""


SAMPLE = nonsmooth.MAX_ELEMENTS // nonsmooth.MOST_RUNS
"""Elements of a larger tensor that are compared: a correlation needs no more."""


class _Suspect(NamedTuple):
    """A tensor, or a sample of it, whose error exceeds what other orders of sums explain."""

    expected: Expected
    right: torch.Tensor
    error: torch.Tensor

    @property
    def norm(self) -> float:
        """The norm of the right values, of which a sample has its share."""
        return self.expected.norm * _share(self.expected.reference64, self.right)


Tensors = Mapping[str, torch.Tensor | None]
OtherError = Callable[[Case], torch.Tensor | None]
"""The tensor's error in a case with other operands; None if it is not known."""


def confirmed_roundings(
    oracle: Oracle, case: Case, table: Table, actual: Tensors, again: Callable[[Case], Tensors]
) -> dict[str, Pattern]:
    """The patterns, by name, of tensors whose errors follow a rounding, and not by chance.

    In doubt they must do so in other draws too: in few elements, and in a loose fit, since what is rounded may end in a
    few numbers that many elements depend on. `again` returns the tensors for another case.
    """
    found = rounding_patterns(oracle, case, table, actual)
    patterns = {name: pattern for name, (_, pattern) in found.items()}
    unsure = {name for name, (alike, _) in found.items() if alike**2 < 1 - CORRELATION**2 or _is_small(actual[name])}
    if not unsure or oracle.is_slow(case):
        return patterns
    confirmed = set(unsure)
    for draw in range(OTHER_DRAWS + 1):
        other = oracle.case(case.variant, training=case.training, draw=draw)
        if other.seed != case.seed and confirmed:
            values = again(other)
            confirmed &= set(rounding_patterns(oracle, other, table, {name: values.get(name) for name in confirmed}))
    return {name: pattern for name, pattern in patterns.items() if name not in unsure - confirmed}


def _is_small(value: torch.Tensor | None) -> bool:
    return value is not None and int(value.count_nonzero()) < MIN_ELEMENTS


def rounding_patterns(oracle: Oracle, case: Case, table: Table, actual: Tensors) -> dict[str, tuple[float, Pattern]]:
    """The correlation of each tensor's error with the rounding that it follows most, and the pattern."""
    suspects = {
        name: suspect
        for name, value in actual.items()
        if value is not None and case.comparable(table, name)
        if (suspect := _suspect(getattr(case, table)[name], value)) is not None
    }
    found: dict[str, tuple[float, Pattern]] = {}
    allowed = TF32_BITS if oracle.precision is Precision.TF32 else 0
    for to in FORMATS if suspects else ():
        if to.bits == allowed or not any(_of_its_size(suspect, to) for suspect in suspects.values()):
            continue
        for rounded in roundings(oracle, case, table, to):
            for name, suspect in suspects.items():
                alike = _alike(suspect, name, rounded) if _of_its_size(suspect, to) else 0.0
                if alike > found.get(name, (0.0,))[0]:
                    kind = _called(to, rounded, has_tf32=backend(oracle.device).tf32)
                    found[name] = alike, _pattern(suspect, kind, rounded, alike)
    return found


def _called(to: NarrowFormat, rounded: Rounded, *, has_tf32: bool) -> str:
    """What a message calls a format. TensorFloat-32 is one of operands, on a device that has it."""
    if to.cut:
        return "TensorFloat-32" if has_tf32 else "11-bit (TensorFloat-32's)"
    if to.bits != TF32_BITS:
        return "bfloat16"
    return "float16 or TensorFloat-32" if has_tf32 and not rounded.of_an_operator else "float16"


def _suspect(expected: Expected | None, actual: torch.Tensor) -> _Suspect | None:
    if expected is None or expected.dtype is not torch.float32 or not actual.numel():
        return None
    right = _sample(expected.reference64)
    error = _sample(actual) - right
    size, usual = norm(error), expected.error_l2 * _share(actual, error)
    if not math.isfinite(size) or size <= tolerance.BASELINE_FACTOR_L2 * usual:
        return None
    return _Suspect(expected, right, error)


def _sample(value: torch.Tensor) -> torch.Tensor:
    """At most SAMPLE elements of a tensor at equal distances, in as many dimensions; on the CPU."""
    while value.numel() > SAMPLE:
        longest = max(range(value.dim()), key=lambda dim: value.shape[dim])
        step = min(value.shape[longest], math.ceil(value.numel() / SAMPLE))
        value = value[(slice(None),) * longest + (slice(None, None, step),)]
    return value.cpu().double()


def _share(whole: torch.Tensor, sample: torch.Tensor) -> float:
    """The share that a sample has in the norm."""
    return math.sqrt(sample.numel() / max(whole.numel(), 1))


def _of_its_size(suspect: _Suspect, to: NarrowFormat) -> bool:
    """Whether the error is at most 16 roundings of the result. One that moves a non-smooth point makes larger ones."""
    return norm(suspect.error) <= 16 * 2.0**-to.bits * norm(suspect.right)


def _alike(suspect: _Suspect, name: str, rounded: Rounded) -> float:
    """How closely the error follows the gap that a rounding makes, up to 1; 0 if it may do so by chance.

    Of few elements it must be the gap, which no order of sums explains. Elements that neither changes, as those behind
    a ReLU, say nothing.
    """
    values, expected = rounded.values.get(name), suspect.expected
    if values is None:
        return 0.0
    gap = _sample(values) - suspect.right
    telling = _moved(suspect.error) | _moved(gap)
    error, due, right = suspect.error[telling], gap[telling], suspect.right[telling]
    count = right.numel()
    if count >= MIN_ELEMENTS:
        error, due = _apart(error, right), _apart(due, right)
    sizes = norm(error), norm(due)
    if not sizes[1] or not 1 / tolerance.BASELINE_FACTOR_L2 < sizes[0] / sizes[1] < tolerance.BASELINE_FACTOR_L2:
        return 0.0
    if float(error.abs().median()) < 0.1 * sizes[0] / math.sqrt(count):
        return 0.0  # of few elements, as at a non-smooth point that both cross
    alike = float((error * due).sum()) / (sizes[0] * sizes[1])
    if _contradicts(suspect, gap):
        return 0.0
    # A few numbers that many elements depend on make a gap like that of a wrong epsilon.
    if alike > max(CORRELATION, 5 / math.sqrt(max(min(count, rounded.numbers), 1))):
        return alike
    units = tolerance.BASELINE_FACTOR_MAX + math.sqrt(expected.reduction_length) / 4
    residual = 0.05 if rounded.of_an_operator else 0.3  # of many roundings, one fits by chance
    size, rest = norm(gap), (suspect.error - gap).abs().flatten().sort().values
    # float32 may carry a number over the middle between two rounded ones.
    rest = rest[:-1] if count > 2 * FREE else rest
    return alike if norm(rest) < residual * size and size > units * EPSILON * suspect.norm else 0.0


def _moved(change: torch.Tensor) -> torch.Tensor:
    """The elements that have a part in a change."""
    return change.abs() > 0.01 * norm(change) / math.sqrt(change.numel())


def _contradicts(suspect: _Suspect, gap: torch.Tensor) -> bool:
    """Whether the error is one factor within each row, channel or the like, and the rounding's is not.

    A wrong epsilon makes such an error, and it may correlate with a rounding by chance.
    """
    dims = [dim for dim, extent in enumerate(gap.shape) if extent > 1]
    for chosen in (chosen for count in range(1, len(dims)) for chosen in itertools.combinations(dims, count)):
        if math.prod(gap.shape[dim] for dim in chosen) < FREE:
            continue
        left, due = (
            norm(error - slope(error, suspect.right, chosen) * suspect.right) for error in (suspect.error, gap)
        )
        if left * 10 < norm(suspect.error) and due * 2 > norm(gap):
            return True
    return False


def _apart(error: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """An error without its part along the result.

    A missing term or a factor makes such a part, as cut operands do.
    """
    shifted, centred = error - error.mean(), right - right.mean()
    return shifted - least_squares(shifted, centred) * centred


def _pattern(suspect: _Suspect, kind: str, rounded: Rounded, alike: float) -> Pattern:
    relative = norm(suspect.error) / max(norm(suspect.right), 1e-300)
    text = (
        f"has errors of the size of {kind} rounding of {rounded.what} (relative {relative:.4g}), and follows those of "
        f"the reference with the same rounding (correlation {alike:.2f})"
    )
    remedy = "keep intermediate results in float32"
    if not rounded.of_an_operator:
        remedy = "keep operands of products in float32"
    if kind.endswith("TensorFloat-32"):
        remedy += ", and TensorFloat-32 off, or grade with --precision tf32"
    return Pattern(text, remedy, "low_precision")


def accumulated(subject: Subject) -> Pattern | None:
    """The error of a long sum that was kept in the 16-bit type of its result.

    It is in more than a quarter of the elements: where an activation ends in zeros, half of them have none.
    """
    dtype, length = subject.expected.dtype, subject.expected.reduction_length
    size, count = norm(subject.right), subject.right.numel()
    if not is_narrow(dtype) or length < FREE * FREE or count < FREE * FREE or not size:
        return None
    relative, unit = subject.size / size, spacing(dtype) / 2
    upper_quartile = float(kth_smallest(subject.error.abs().flatten(), count - count // 4))
    spread_out = upper_quartile > 0.2 * subject.size / math.sqrt(count)
    if not spread_out or not unit / 4 < relative < unit * math.sqrt(length) or not _patternless(subject.error):
        return None
    name = dtype_name(dtype)
    text = f"has the error of sums that are kept in {name} (relative {relative:.4g}), without a pattern"
    return Pattern(text, "accumulate in float32, and round once at the end", "low_precision")


def repeats(subject: Subject, oracle: Oracle, case: Case, other_error: OtherError) -> bool:
    """Whether the error is the same for operands a few roundings away, as that of a wrong formula is.

    Sums that are kept in a narrow type round otherwise then. Also true where there is no time to ask.
    """
    unit = spacing(subject.expected.dtype)
    if oracle.is_slow(case) or case.released:
        return True
    for name in case.wrt or tuple(case.operand_names):
        if is_float(case.operand(name)):
            case = with_moved(case, name, FREE * unit)
    error = other_error(case)
    if error is None:
        return True
    error = subject.beside(error)
    return float((error * subject.error).sum()) > CORRELATION * norm(error) * norm(subject.error)


def _patternless(error: torch.Tensor) -> bool:
    """Whether the error averages out along each dimension, as rounding does."""
    whole = norm(error)
    for dim, extent in enumerate(error.shape):
        if extent >= FREE and math.sqrt(extent) * norm(error.mean(dim)) > 0.7 * whole:
            return False
    return True
