"""Decides whether one tensor is right: the rule, its constants, and the figures that a verdict shows.

With G the float64 reference, E_c the candidate's error against G, E_e the error of float32 eager PyTorch, e = 2^-23 and
K the longest reduction, a floating-point tensor passes if

1. NaN, +Inf and -Inf stand in the same places, or float32 eager PyTorch has them where G is finite;
2. ||E_c|| <= 4 ||E_e|| + (32 + sqrt K) e ||G||;
3. |E_c| <= 8 max|E_e| + (1e-5 + e sqrt K) (rms(G) + |G|) in each element.

The baseline error E_e is the worst of several eager runs. All but the first run on inputs and parameters perturbed by a
few rounding errors: at a non-smooth point or a tie, float32 and float64 may take different branches, and the perturbed
runs show how much that matters. Where few elements lie near such a point, it is chance whether a run takes the other
branch. For small tensors, `nonsmooth` therefore corrects both sides. An error that breaks a rule is reduced by what
non-smooth points explain in each element. A baseline error that contains a non-smooth point counts only for the
elements near one: the others must pass without it.

The sqrt K follows the probabilistic bound of Higham and Mary, "A New Approach to Probabilistic Rounding Error
Analysis", SIAM J. Sci. Comput. 41(5), 2019.

A tensor of 16 bits has half the factors, and rule 4: its error has no part along G beyond one rounding and twice that
of eager PyTorch (`narrow_types`). Those too small for rule 3 are judged by `small_elements`. Integers
and booleans must be equal where the reference's runs agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from grader.grading.compare import narrow_types, nonsmooth, small_elements
from grader.grading.compare.blocks import norm, number, relative, unravel
from grader.grading.compare.error_sizes import Compared, ErrorSize, error_sizes
from grader.grading.compare.expected import COARSE_TOLERANCE, Expected, know_norms
from grader.grading.compare.together import HOST_ELEMENTS
from grader.protocol import dtype_name
from grader.verdict.stages import TensorCheck

BASELINE_FACTOR_L2 = 4.0
"""The norm of an error may be this many times the baseline's, the worst of four runs. A choice: orders of sums vary."""
BASELINE_FACTOR_MAX = 8.0
"""The same for each element and the largest baseline error. A choice: a maximum varies more than a norm."""

Pair = tuple[Expected, torch.Tensor]
"""What a tensor should be, and a candidate of its shape and dtype."""
NOT_FINITE_ALIKE = "has NaN or infinity where the reference has none, or the other way round"
"""The end of the message on such a tensor."""


def check(expected: Expected, candidate: torch.Tensor) -> TensorCheck:
    """Compare all elements of a candidate that has the shape and dtype of `expected`."""
    return next(check_each([(expected, candidate)]))


def passes(expected: Expected, candidate: torch.Tensor) -> bool:
    """Whether a candidate that has the shape and dtype of `expected` is right."""
    return check(expected, candidate).status == "passed"


def with_room_for_zeros(each: Mapping[str, Expected]) -> dict[str, Expected]:
    """Gradients of one backward; one that is exactly zero may be off by the rounding of the largest.

    Behind a softmax over a single key, terms cancel exactly in the order in which the reference adds them.
    """
    zero = {name for name, gradient in each.items() if gradient.rounds and not gradient.error_l2 and not gradient.norm}
    if not zero:
        return dict(each)
    know_norms(list(each.values()))
    noise = max(gradient.rounding * gradient.rms for gradient in each.values()) / BASELINE_FACTOR_L2

    def with_room(gradient: Expected) -> Expected:
        room = gradient.around(gradient.reference64)  # no run of the reference has another value
        return replace(room, error_l2=noise * math.sqrt(gradient.reference64.numel()), error_max=noise)

    return {name: with_room(gradient) if name in zero else gradient for name, gradient in each.items()}


def check_each(pairs: Sequence[Pair]) -> Iterator[TensorCheck]:
    """Yields the `check` of each pair; small tensors are compared together."""
    rounded = [(expected, _excused(expected, candidate)) for expected, candidate in pairs if expected.rounds]
    judged = (_judged(*pair, size) for pair, size in zip(rounded, differences(rounded), strict=True))
    for expected, candidate in pairs:
        yield next(judged) if expected.rounds else _check_exact(expected, candidate)


def _excused(expected: Expected, candidate: torch.Tensor) -> torch.Tensor:
    """The candidate with the exact values where it is not finite, as the eager run is there."""
    if expected.overflows is None:
        return candidate
    excused = expected.overflows.to(candidate.device) & ~candidate.isfinite()
    return torch.where(excused, expected.reference64.to(candidate), candidate)


def _judged(expected: Expected, candidate: torch.Tensor, size: ErrorSize) -> TensorCheck:
    """The verdict on a floating-point or complex tensor whose error has this size."""
    dtype = dtype_name(expected.dtype)
    error, baseline_error = (relative(length, size.reference_l2) for length in (size.l2, expected.error_l2))
    at, value, right = None, None, None
    if size.worst:
        at, value, right = unravel(size.worst_at, expected.shape), size.worst_candidate, size.worst_reference
    passed = _passes(expected, candidate, size)
    small = message = _small_elements(expected, candidate) if passed else None
    if not size.same_specials:
        message = f"{expected.name} {NOT_FINITE_ALIKE}"
    elif not passed:
        message = (
            f"{expected.name} is off by {size.worst:.3g} at {list(at or ())} ({number(value)} for {number(right)}), "
            f"relative RMS error {error:.2g} where {dtype} eager PyTorch has {baseline_error:.2g}"
        )
    return TensorCheck(
        name=expected.name,
        status="passed" if passed and small is None else "failed",
        shape=expected.shape,
        dtype=dtype,
        max_abs_error=size.worst,
        rel_rms_error=error,
        baseline_rel_rms_error=baseline_error,
        worst_index=at,
        worst_candidate=value,
        worst_reference=right,
        passes_1e_4=size.within_plain(1e-4),
        passes_1e_2=size.within_plain(1e-2),
        message=message,
    )


def _passes(expected: Expected, candidate: torch.Tensor, size: ErrorSize) -> bool:
    """Whether rules 1 to 4 hold, but for what ties and non-smooth points explain."""
    if not size.same_specials:
        return False
    bound = _l2_bound(expected, size.reference_l2)
    beyond_rounding = size.l2 > _rounding_bound(expected, size.reference_l2)
    right = size.l2 <= bound and size.bound_ratio <= 1.0
    if expected.ties is not None:
        if beyond_rounding or not right:
            right = expected.ties.explain(
                expected.reference64, candidate, expected.slope, _rounding_bound(expected, 1.0)
            )
    elif expected.spread is not None:
        right = right or _nonsmooth_explains(expected, expected.spread, candidate, bound)
        if right and beyond_rounding and expected.strict:
            right = not all(_hides_behind_baseline(expected, runs, candidate, size) for runs in nonsmooth.RUNS)
    if right and expected.has_float64:
        return narrow_types.keeps_scale(candidate, expected.reference64, expected.error_along)
    return right


def differences(pairs: Sequence[Pair]) -> list[ErrorSize]:
    """The size of each error, from one pass over the elements, which synchronizes with the GPU once."""
    know_norms([expected for expected, _ in pairs])
    questions = []
    for expected, candidate in pairs:
        slope, rms, share = expected.slope, expected.rms, narrow_types.share(expected.dtype)
        floor = BASELINE_FACTOR_MAX * share * expected.error_max + slope * rms
        floor += 0 if expected.has_float64 else COARSE_TOLERANCE
        reference64 = expected.reference64
        if len(pairs) == 1 and candidate.numel() <= HOST_ELEMENTS:
            candidate, reference64 = candidate.cpu(), expected.on_host
        questions.append(Compared(candidate, reference64, floor, slope))
    return error_sizes(questions, 1e-4)


def _small_elements(expected: Expected, candidate: torch.Tensor) -> str | None:
    """The fault of the elements that are too small for rule 3."""
    share = expected.small_tolerated
    if expected.spread is None or share is None:
        return None
    small, least = expected.slope * expected.rms, expected.least
    fault = small_elements.wrong(
        candidate, expected.reference64, expected.spread, small=small, share=share, least=least
    )
    return None if fault is None else f"{expected.name} {fault}"


def _nonsmooth_explains(expected: Expected, spread: nonsmooth.Spread, candidate: torch.Tensor, bound: float) -> bool:
    """Whether rules 2 and 3 hold for the errors less what non-smooth points may cause."""
    reference64 = expected.reference64.to(candidate.device)
    error = nonsmooth.absolute_error(candidate, reference64)
    if nonsmooth.most_are_wrong(error, bound):
        return False
    for runs in nonsmooth.RUNS:
        rest = (error - _nonsmooth_allowance(expected, spread(runs).to(error.device))).clamp_min(0)
        (remaining,) = differences([(expected, torch.where(reference64.isfinite(), reference64 + rest, reference64))])
        if remaining.l2 <= bound and remaining.bound_ratio <= 1.0:
            return True
    return False


def _hides_behind_baseline(expected: Expected, runs: int, candidate: torch.Tensor, size: ErrorSize) -> bool:
    """Whether rule 2 holds only because non-smooth points raise the baseline error.

    Then most elements away from non-smooth points break rule 2 with the baseline error of such elements alone.
    """
    if runs not in expected.smooth:
        expected.smooth[runs] = _away_from_nonsmooth(expected, runs)
    smooth, bound = expected.smooth[runs]
    if size.l2 <= bound:  # half of the smooth elements have at least their median error, so `size.l2` is no smaller
        return False
    reference64 = expected.reference64.to(candidate.device)
    error = nonsmooth.absolute_error(candidate, reference64)[smooth.to(candidate.device)]
    return float(error.median()) * math.sqrt(error.numel() / 2) > bound


def _away_from_nonsmooth(expected: Expected, runs: int) -> tuple[torch.Tensor, float]:
    """The elements away from non-smooth points, by a spread over so many runs, and rule 2's bound for them alone."""
    assert expected.spread is not None
    spread = expected.spread(runs)
    smooth = _nonsmooth_allowance(expected, spread) == 0
    spreads = spread[smooth]
    if spreads.numel() < nonsmooth.MIN_ELEMENTS:
        return smooth, math.inf
    # Rounding to a type narrower than float32 is in every run, however little its values are perturbed.
    rounds = expected.rounds_operands or expected.dtype.itemsize < 4
    of_smooth = norm(spreads) / (1.0 if rounds else nonsmooth.BASELINE_ERRORS)
    if expected.eager_error is not None:
        # In front of a norm, most of a gradient cancels. The rest is rounding, which larger noise does not enlarge.
        of_smooth = max(of_smooth, norm(expected.eager_error().to(smooth.device)[smooth]))
    baseline_error = min(expected.error_l2, of_smooth)
    within = norm(expected.reference64.to(smooth.device)[smooth])
    return smooth, BASELINE_FACTOR_L2 * baseline_error + _rounding_bound(expected, within)


def _nonsmooth_allowance(expected: Expected, spread: torch.Tensor) -> torch.Tensor:
    """The error that non-smooth points may add to each element."""
    reference64 = expected.reference64.to(spread.device)
    return nonsmooth.allowance(spread, expected.slope * (expected.rms + reference64.abs()))


def _check_exact(expected: Expected, candidate: torch.Tensor) -> TensorCheck:
    """Compare integers or booleans, except where rounding decides them."""
    wrong = candidate != expected.reference64
    if expected.ambiguous is not None:
        wrong &= ~expected.ambiguous
    if expected.spread is not None and bool(wrong.any()):
        wrong &= expected.spread().to(wrong.device) == 0
    count, message = int(wrong.sum()), None
    where = unravel(int(wrong.reshape(-1).view(torch.uint8).argmax()), expected.shape) if count else None
    if where is not None:
        message = (
            f"{expected.name} differs in {count} of {wrong.numel()} elements, first at {list(where or ())}: "
            f"{candidate[where].item()} for {expected.reference64[where].item()}"
        )
    return TensorCheck(
        name=expected.name,
        status="failed" if count else "passed",
        shape=expected.shape,
        dtype=dtype_name(expected.dtype),
        worst_index=where,
        passes_1e_4=count == 0,
        passes_1e_2=count == 0,
        message=message,
    )


def _l2_bound(expected: Expected, reference_l2: float) -> float:
    """The right side of rule 2."""
    if not expected.has_float64:
        return math.inf  # rule 3 with the fallback tolerance decides alone
    factor = BASELINE_FACTOR_L2 * narrow_types.share(expected.dtype)
    return factor * expected.error_l2 + _rounding_bound(expected, reference_l2)


def _rounding_bound(expected: Expected, reference_l2: float) -> float:
    """The part of rule 2's bound that does not depend on the baseline error."""
    rounded_once = narrow_types.spacing(expected.dtype) / math.sqrt(max(expected.reference64.numel(), 1))
    return (expected.rounding + rounded_once) * reference_l2
