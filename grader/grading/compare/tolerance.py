"""Is one tensor right? The rule, its constants, and the figures that a verdict shows.

With G the reference in float64, E_c the candidate's error against G, E_e the error of float32 eager PyTorch, e = 2^-23
and K the longest reduction, a tensor of floats passes when

1. NaN, +Inf and -Inf stand in the same places, or where float32 eager PyTorch has them and exact values are finite;
2. ||E_c|| <= 4 ||E_e|| + (32 + sqrt K) e ||G||;
3. everywhere |E_c| <= 8 max|E_e| + (1e-5 + e sqrt K) (rms(G) + |G|).

The baseline_error E_e is the worst of several eager runs, all but the first on inputs and parameters perturbed by a few
rounding errors: where a function has a kink or a tie, float32 and float64 legitimately take different branches, and the
perturbed runs show how much that matters. Whether one of them does so is chance, where few elements are at a kink. So
what a small tensor's kinks explain, element by element, is left out of an error that breaks a rule; and as the
baseline_error may have a kink too, most of the elements that none touches must do without it (`kinks`). The rounding
model behind sqrt K is the probabilistic bound of Higham and Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019.

Integers and booleans must be equal wherever the reference runs agree with each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from grader.grading.compare import nonsmooth
from grader.grading.compare.blocks import figures, norm
from grader.verdict.stages import TensorCheck

EPSILON = 2.0**-23
"""Spacing of float32 at 1."""
YARDSTICK_FACTOR_L2 = 4.0
YARDSTICK_FACTOR_MAX = 8.0
ROUNDING_UNITS = 32.0
"""Rounding errors that any honest chain of operations may add up, in units of EPSILON, relative to the norm."""
ELEMENT_TOLERANCE = 1e-5
HOST_ELEMENTS = 1 << 14
"""As many as these a CPU compares sooner than a GPU launches the kernels for it."""
FALLBACK_TOLERANCE = 1e-4
"""Relative and absolute, where the reference does not run in float64."""


@dataclass(frozen=True)
class Expected:
    """What the reference has for one tensor. Never sent to a candidate."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    """Of the float32 run: what the candidate must return."""
    reference64: torch.Tensor
    """The float64 run's values, of a large one rounded to float32; the float32 run's for integers, and where float64
    does not run."""
    error_l2: float = 0.0
    """||E_e||, worst of the eager runs."""
    error_max: float = 0.0
    reduction_length: float = 1.0
    """K."""
    ambiguous: torch.Tensor | None = None
    """Integers only: where the reference runs disagree with each other."""
    overflows: torch.Tensor | None = None
    """Where the eager run is not finite and `reference64` is: a candidate may be either."""
    has_float64: bool = True
    spread: nonsmooth.Spread | None = None
    """Of a small one: made when it may decide."""

    def around(self, reference64: torch.Tensor) -> Expected:
        """The same tolerance around other values, whose kinks are elsewhere."""
        return replace(self, reference64=reference64, spread=None, overflows=None)

    def without_values(self) -> Expected:
        """The same shapes, norm and errors, with no values to compare with."""
        slim = replace(self, reference64=self.reference64.to("meta"), spread=None, overflows=None, ambiguous=None)
        slim.__dict__["norm"] = self.norm
        slim.__dict__["ambiguous_count"] = self.ambiguous_count
        return slim

    @cached_property
    def ambiguous_count(self) -> int:
        """Elements in which the reference runs disagree with each other."""
        return 0 if self.ambiguous is None else int(self.ambiguous.sum())

    @cached_property
    def norm(self) -> float:
        """Euclidean norm over finite elements of `reference64`, in float64."""
        return norm(self.reference64)

    @cached_property
    def on_host(self) -> torch.Tensor:
        """`reference64` there."""
        return self.reference64.cpu()


@dataclass(frozen=True)
class Difference:
    """Sizes of a difference, over all elements that are finite in the reference."""

    l2: float
    max: float
    golden_l2: float
    worst_index: tuple[int, ...] | None
    worst_candidate: float | None
    worst_reference: float | None
    excess: float
    """Largest |E_c| over its elementwise bound; above 1 fails rule 3."""
    passes_1e_4: bool
    passes_1e_2: bool
    same_specials: bool
    """NaN and infinities stand in the same places."""


def check(expected: Expected, candidate: torch.Tensor) -> TensorCheck:
    """Compare all elements; shape and dtype are those of `expected` already."""
    if not (expected.dtype.is_floating_point or expected.dtype.is_complex):
        return _check_exact(expected, candidate)
    if expected.overflows is not None:
        excused = expected.overflows.to(candidate.device) & ~candidate.isfinite()
        candidate = torch.where(excused, expected.reference64.to(candidate), candidate)
    found = difference(candidate, expected)
    bound = _l2_bound(expected, found.golden_l2)
    passed = found.same_specials and found.l2 <= bound and found.excess <= 1.0
    if found.same_specials and expected.spread is not None:
        if not passed:
            passed = _kinks_explain(expected, expected.spread, candidate, bound)
        if passed and found.l2 > _rounding_bound(expected, found.golden_l2):
            passed = not _hides_behind_kinks(expected, expected.spread(), candidate)
    message = None
    if not found.same_specials:
        message = f"{expected.name} has NaN or infinity where the reference has none, or the other way round"
    elif not passed:
        message = (
            f"{expected.name} is off by {found.max:.3g} at {_index(found.worst_index)} "
            f"({_number(found.worst_candidate)} for {_number(found.worst_reference)}), "
            f"relative RMS error {_relative(found.l2, found.golden_l2):.2g} "
            f"where float32 eager PyTorch has {_relative(expected.error_l2, found.golden_l2):.2g}"
        )
    return TensorCheck(
        name=expected.name,
        status="passed" if passed else "failed",
        shape=expected.shape,
        dtype=str(expected.dtype).removeprefix("torch."),
        max_abs_error=found.max,
        rel_rms_error=_relative(found.l2, found.golden_l2),
        yardstick_rel_rms_error=_relative(expected.error_l2, found.golden_l2),
        worst_index=found.worst_index,
        worst_candidate=found.worst_candidate,
        worst_reference=found.worst_reference,
        passes_1e_4=found.passes_1e_4,
        passes_1e_2=found.passes_1e_2,
        message=message,
    )


def within_range(exact: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Infinity where `dtype` has no room."""
    return torch.where(exact.abs() > torch.finfo(dtype).max, exact.sign() * math.inf, exact)


def difference(candidate: torch.Tensor, expected: Expected) -> Difference:
    """All figures in one pass over the elements; a GPU is waited for once, at its end."""
    slope, rms = _slope(expected), _rms(expected)
    floor = (
        YARDSTICK_FACTOR_MAX * expected.error_max + slope * rms + (0 if expected.has_float64 else FALLBACK_TOLERANCE)
    )
    reference64 = expected.reference64
    if candidate.numel() <= HOST_ELEMENTS:
        candidate, reference64 = candidate.cpu(), expected.on_host
    pieces = figures(candidate, reference64, floor, slope)
    worst = max(pieces, key=lambda piece: piece.worst, default=None)
    worst_at = int(worst.at) if worst and worst.worst else None
    same_specials = all(piece.same_specials for piece in pieces)
    of_size = max((piece.of_size for piece in pieces), default=0.0)
    flat_c, flat_g = candidate.reshape(-1), reference64.reshape(-1)
    return Difference(
        l2=math.sqrt(sum(piece.squares for piece in pieces)),
        max=worst.worst if worst else 0.0,
        golden_l2=math.sqrt(sum(piece.reference_squares for piece in pieces)),
        worst_index=None if worst_at is None else unravel(worst_at, expected.shape),
        worst_candidate=_element(flat_c, worst_at),
        worst_reference=_element(flat_g, worst_at),
        excess=max((piece.of_bound for piece in pieces), default=0.0),
        passes_1e_4=same_specials and of_size <= 1e-4,
        passes_1e_2=same_specials and of_size <= 1e-2,
        same_specials=same_specials,
    )


def _slope(expected: Expected) -> float:
    """What rule 3 allows an element, relative to its size and to the tensor's."""
    if not expected.has_float64:
        return FALLBACK_TOLERANCE
    return ELEMENT_TOLERANCE + EPSILON * math.sqrt(expected.reduction_length)


def _rms(expected: Expected) -> float:
    return expected.norm / math.sqrt(max(expected.reference64.numel(), 1))


def _kinks_explain(expected: Expected, spread: nonsmooth.Spread, candidate: torch.Tensor, bound: float) -> bool:
    """Rules 2 and 3 hold for what is left of the errors."""
    reference64 = expected.reference64.to(candidate.device)
    error = nonsmooth.apart(candidate, reference64)
    if nonsmooth.touch_too_few(error, bound):
        return False
    left = (error - _at_kinks(expected, spread().to(error.device))).clamp_min(0)
    found = difference(torch.where(reference64.isfinite(), reference64 + left, reference64), expected)
    return found.l2 <= bound and found.excess <= 1.0


def _hides_behind_kinks(expected: Expected, spread: torch.Tensor, candidate: torch.Tensor) -> bool:
    """Rule 2 holds by what kinks add to the baseline_error: most elements that none touches are off by more without."""
    spread = spread.to(candidate.device)
    calm = _at_kinks(expected, spread) == 0
    reference64 = expected.reference64.to(candidate.device)
    error = nonsmooth.apart(candidate, reference64)[calm]
    if error.numel() < nonsmooth.FEW:
        return False
    baseline_error = min(expected.error_l2, norm(spread[calm]) / nonsmooth.BASELINE_ERRORS)
    bound = YARDSTICK_FACTOR_L2 * baseline_error + _rounding_bound(expected, norm(reference64[calm]))
    return float(error.median()) * math.sqrt(error.numel() / 2) > bound


def _at_kinks(expected: Expected, spread: torch.Tensor) -> torch.Tensor:
    reference64 = expected.reference64.to(spread.device)
    return nonsmooth.explained(spread, _slope(expected) * (_rms(expected) + reference64.abs()))


def _element(flat: torch.Tensor, position: int | None) -> float | None:
    """A complex element by its magnitude."""
    if position is None:
        return None
    return float(flat[position].abs() if flat.dtype.is_complex else flat[position])


def _check_exact(expected: Expected, candidate: torch.Tensor) -> TensorCheck:
    wrong = candidate != expected.reference64
    if expected.ambiguous is not None:
        wrong &= ~expected.ambiguous
    if expected.spread is not None and bool(wrong.any()):
        wrong &= expected.spread().to(wrong.device) == 0
    count = int(wrong.sum())
    where = unravel(int(wrong.reshape(-1).int().argmax()), expected.shape) if count else None
    message = None
    if where is not None:
        message = (
            f"{expected.name} differs in {count} of {wrong.numel()} elements, first at {_index(where)}: "
            f"{candidate[where].item()} for {expected.reference64[where].item()}"
        )
    return TensorCheck(
        name=expected.name,
        status="failed" if count else "passed",
        shape=expected.shape,
        dtype=str(expected.dtype).removeprefix("torch."),
        worst_index=where,
        passes_1e_4=count == 0,
        passes_1e_2=count == 0,
        message=message,
    )


def _l2_bound(expected: Expected, golden_l2: float) -> float:
    if not expected.has_float64:
        return math.inf  # rule 3 with the fallback tolerance decides alone
    return YARDSTICK_FACTOR_L2 * expected.error_l2 + _rounding_bound(expected, golden_l2)


def _rounding_bound(expected: Expected, golden_l2: float) -> float:
    """Of rule 2, what needs no baseline_error."""
    return (ROUNDING_UNITS + math.sqrt(expected.reduction_length)) * EPSILON * golden_l2


def _relative(error: float, size: float) -> float:
    if error == 0.0:
        return 0.0
    return error / size if size else math.inf


def unravel(position: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The index of an element in row-major order. `torch.unravel_index` imports sympy for it, which takes seconds."""
    index = []
    for extent in reversed(shape):
        position, inner = divmod(position, extent)
        index.append(inner)
    return tuple(reversed(index))


def _index(index: tuple[int, ...] | None) -> str:
    return "[" + ", ".join(str(i) for i in index or ()) + "]"


def _number(value: float | None) -> str:
    return "nothing" if value is None else f"{value:.6g}"
