"""Experiments on grad_output: its values and their size."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

import torch

from grader.grading import chance
from grader.grading.backward.experiments._base import ExperimentCases, experiment, first_wrong, plain_is_right
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import Answer, GradOutputs, attempt_each, one_product, product
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import norm, reals
from grader.grading.compare.expected import Expected
from grader.grading.compare.narrow_types import spacing
from grader.grading.compare.scaling import REDUCED_PRECISION, ROUNDING_RESIDUAL, change
from grader.grading.messages import VARIES, diagnose, first_line
from grader.grading.oracle.case import Case
from grader.verdict.models import Diagnosis

EXPONENTS = (-30, 16)
"""Powers of two: a mean over a full-size output divides by 2^28, and float16 losses are scaled up by 2^16."""


@experiment(
    "ignores_grad_output",
    question="The product is zero for a zero grad_output, and linear in it, whatever its size.",
    remedy="multiply by grad_output as it comes",
    rank=40,
    explains=True,
    weight=4,
)
def ignores_grad_output(candidate: Candidate, cases: ExperimentCases) -> Diagnosis | None:
    """Runs both modes in one job, so that a gradient that is kept from an earlier call shows."""
    if not cases.first.values_comparable:
        return None
    questions = [
        one_product(candidate, mode.first, given=other)
        for mode in cases.modes
        for other in _others(mode.first.cotangents)
    ]
    count = len(questions) // len(cases.modes)
    answers = attempt_each(candidate, questions, "backward with another grad_output")

    def wrong(mode: ExperimentCases) -> Diagnosis | None:
        ours = islice(answers, count)  # of a large case, each holds gigabytes until the next
        ignored = _ignored(candidate, mode.first, islice(ours, 1 + len(EXPONENTS)))
        return ignored or _not_the_sum(candidate, mode.first, list(ours)[-4:])

    return cases.in_each_mode(wrong)


def _times(cotangents: Mapping[str, torch.Tensor], factor: float) -> dict[str, torch.Tensor]:
    return {name: value * factor for name, value in cotangents.items()}


def _others(given: Mapping[str, torch.Tensor]) -> list[GradOutputs]:
    """Zeros, those of other sizes, the given one, one that is alike in part, and the two parts of twice that."""
    seed = chance.new_seed()
    sizes = [0.0, *(2.0**exponent for exponent in EXPONENTS)]
    return [
        *(partial(_times, given, size) for size in sizes),
        lambda: given,
        lambda: alike_in_part(given, seed),
        lambda: {name: _inside(value).mul_(2) for name, value in alike_in_part(given, seed).items()},
        lambda: {name: (value - _inside(value)).mul_(2) for name, value in alike_in_part(given, seed).items()},
    ]


def _inside(value: torch.Tensor) -> torch.Tensor:
    """Zero at the edges of every dimension, as for a loss on some steps or behind padding, and the value inside."""
    inside, kept = torch.zeros_like(value), list[slice]()
    for extent in value.shape:
        first = min(max(1, extent // 4), extent - 1)
        kept.append(slice(first, max(first + 1, extent - first)))
    inside[tuple(kept)] = value[tuple(kept)]
    return inside


def alike_in_part(cotangents: Mapping[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """Others with the same first and last third and the same sums: the elements between change places."""

    def rolled(value: torch.Tensor) -> torch.Tensor:
        flat = value.reshape(-1).clone()
        if flat.numel() < 4:
            flat[1:] *= -1
            return flat.view(value.shape)
        third = max(1, flat.numel() // 3)
        between = flat[third : flat.numel() - third]  # by a permutation, a large one would take gigabytes
        between.copy_(between.roll(1 + seed % max(1, between.numel() - 1)))
        return flat.view(value.shape)

    return {name: rolled(value) for name, value in cotangents.items()}


def _not_the_sum(candidate: Candidate, case: Case, answers: Sequence[Answer]) -> Diagnosis | None:
    """A diagnosis if a grad_output's product is not half the sum of those of the two parts of twice it.

    Rounding is allowed. It comes after another that agrees with it in some elements: a result that is kept by these
    shows here. So does one that takes a row or step without any grad_output for one without a gradient.
    """
    if len(answers) < 4 or answers[-1].result.failure is not None:
        return None
    earlier, whole, inside, outside = (product(candidate, case, *answer).gradients for answer in answers)
    for name, expected in case.gradients.items():
        before, one, first, second = (gradients[name] for gradients in (earlier, whole, inside, outside))
        if expected is None or one is None or first is None or second is None:
            continue
        gap = _gap(expected, first / 2, second / 2, one, least=5 * REDUCED_PRECISION)  # the whole is right
        if not gap:
            continue
        label = case.operand_names[name]
        if before is not None and tolerance.passes(expected.around(before), one):
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{label}` is that of an earlier grad_output with the same first and last third, the same "
                "sum, and others in between",
                remedy="compute it from all of grad_output in every call, and keep nothing by a part of it",
            )
        return diagnose(
            "ignores_grad_output",
            f"gradient of `{label}` is not the sum of those for a grad_output's edges and for its inside alone",
            amount=f"off by {gap:.2g} of its size",
            remedy="leave nothing out where some of grad_output is zero, and use no thresholds or clamps",
        )
    return None


def _ignored(candidate: Candidate, case: Case, answers: Iterator[Answer]) -> Diagnosis | None:
    """A diagnosis of the products for zeros and for `EXPONENTS`, up to the first that raised."""
    found = _not_zero(candidate, case, answers)
    if found is not None:
        return found
    scaled = (_scaled(candidate, case, exponent, answer) for exponent, answer in zip(EXPONENTS, answers, strict=False))
    diagnosis = next(filter(None, scaled), None)
    if diagnosis is None or plain_is_right(candidate, case):
        return diagnosis
    return _not_linear(candidate, case)


def _not_zero(candidate: Candidate, case: Case, answers: Iterator[Answer]) -> Diagnosis | None:
    """A diagnosis of the next product, which is for zeros, with the one after it if that is needed."""
    zero = next(answers, None)
    if zero is None or zero.result.failure is not None:
        return None
    for name, gradient in product(candidate, case, *zero).gradients.items():
        expected = case.gradients[name]
        if gradient is None or expected is None:
            continue
        size = norm(gradient)
        # A linear backward gives 0 here, one that ignores grad_output gives the norm of the reference.
        if not size <= ROUNDING_RESIDUAL * expected.norm:
            tiny = next(answers, None)
            if tiny is not None and _varies(gradient, tiny, candidate, case, name):
                what = f"gradient of `{case.operand_names[name]}` changes between calls with hardly any grad_output"
                return diagnose("nondeterministic_grad", what, amount=f"of norm {size:.3g}", remedy=VARIES)
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{case.operand_names[name]}` is not zero (norm {size:.3g}) for a grad_output of zeros",
                remedy="multiply by grad_output instead of assuming ones",
            )
    return None


def _varies(left: torch.Tensor, answer: Answer, candidate: Candidate, case: Case, name: str) -> bool:
    """Whether what is left for zeros is unlike that for hardly more, so that it is no part of the gradient.

    That for hardly more must be wrong too: a backward may treat zeros alone as something else.
    """
    other = None if answer.result.failure else product(candidate, case, *answer).gradients[name]
    factor = 2.0 ** -EXPONENTS[0]
    if other is None or not first_wrong(candidate, case, answer.result, key=answer.key, only=[name], factor=factor):
        return False
    return not change(left, other) <= REDUCED_PRECISION


def _scaled(candidate: Candidate, case: Case, exponent: int, answer: Answer) -> Diagnosis | None:
    """A power of two times the grad_output gives as many times the product, in every bit except for underflow."""
    failure = answer.result.failure
    if failure is not None:
        what = f"backward raises {first_line(failure)}"
        where = f"a grad_output of 2^{exponent} times the size"
        return diagnose("ignores_grad_output", what, where=where, remedy="compute with grad_output as it comes")
    operand = first_wrong(candidate, case, answer.result, key=answer.key, factor=2.0**-exponent)
    if operand is None:
        return None
    which = "small one, as of a mean's loss" if exponent < 0 else "large one, as of a scaled loss"
    return diagnose(
        "ignores_grad_output",
        f"gradient of `{operand}` is right for a grad_output of about 1 and wrong for a {which}",
        where=f"2^{exponent} times",
        remedy="compute with grad_output as it comes, without thresholds, clamps or narrower types",
    )


def _not_linear(candidate: Candidate, case: Case) -> Diagnosis | None:
    """A part of a grad_output gives as much of the product, and a sum of two the sum of their products."""
    others = {name: torch.randn_like(value) for name, value in case.cotangents.items()}
    sums = {name: value + others[name] for name, value in case.cotangents.items()}
    exponent = -10  # most elements below a threshold that some are below anyway, and in float16's range
    given = (_times(case.cotangents, 2.0**exponent), case.cotangents, others, sums)
    questions = [one_product(candidate, case, cotangents=cotangents) for cotangents in given]
    answers = list(attempt_each(candidate, questions, "backward with a part and with a sum of grad_outputs"))
    if answers[-1].result.failure is not None:
        return None
    products = [product(candidate, case, *answer).gradients for answer in answers]
    for name in case.wrt:
        small, first, second, both = (gradients[name] for gradients in products)
        if small is None or first is None or second is None or both is None:
            continue
        label, expected = case.operand_names[name], case.gradients[name]
        whole = small * 2.0**-exponent
        off = change(first, whole)
        if off > REDUCED_PRECISION and expected and not tolerance.passes(expected.around(first), whole):
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{label}` does not grow with grad_output",
                where=f"2^{exponent} times",
                amount=f"off by {off:.2g} of its size",
                remedy="compute with grad_output as it comes, without thresholds or clamps",
            )
        if gap := _gap(expected, first, second, both):
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{label}` is not linear in grad_output",
                amount=f"off by {gap:.2g} of its size for a sum of two",
                remedy="multiply by grad_output once, and by nothing else that is computed from it",
            )
    return None


def _gap(
    expected: Expected | None,
    first: torch.Tensor,
    second: torch.Tensor,
    both: torch.Tensor,
    least: float = 20 * REDUCED_PRECISION,
) -> float:
    """How far a sum's product is from the sum of two products, relative to their sizes; 0 if rounding allows it.

    A gap below `least` is rounding: by default what a backward that computes in bfloat16 stays below.
    """
    gap = float(torch.linalg.vector_norm(reals(first) + reals(second) - reals(both)))
    size = float(torch.linalg.vector_norm(reals(first)) + torch.linalg.vector_norm(reals(second)))
    rounding = max(least, _kept_narrow(expected))
    return gap / size if gap > rounding * size and not _is_noise(expected, first, second, both) else 0.0


def _kept_narrow(expected: Expected | None) -> float:
    """The largest relative error of a sum that is kept in the 16 bits of its result; 0 for float32."""
    return spacing(expected.dtype) / 2 * math.sqrt(expected.reduction_length) if expected else 0.0


def _is_noise(expected: Expected | None, first: torch.Tensor, second: torch.Tensor, both: torch.Tensor) -> bool:
    """Whether the gap between a sum's product and the sum of products is what rounding allows in three products.

    The gradient of a bias in front of a norm is 0, and all that a right backward returns for it is rounding.
    """
    if expected is None:
        return True
    total = first + second
    return tolerance.passes(expected.around(total), total + (both - total) / 3)
