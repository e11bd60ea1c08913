"""Does the backward follow its grad_output, in whatever form it comes?"""

from __future__ import annotations

import torch

from grader.executor import JobResult
from grader.executor.job import CotangentLayout
from grader.grading.backward.experiments._conditions_common import Cases, first_wrong, plain_is_right
from grader.grading.backward.vjp import ask, attempt_each, product
from grader.grading.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import reals
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose, first_line
from grader.verdict.models import Diagnosis

LINEARITY_TOLERANCE = 1e-4
"""On ||vjp(0)|| against ||vjp(g)||: a gradient that does not follow grad_output is off by its own size."""
NONLINEAR_SHARE = 2e-2
"""On ||vjp(g) + vjp(h) - vjp(g + h)||: wide enough for a backward that computes in bfloat16."""
EXPONENTS = (-30, 16)
"""Of two: a mean over a full-size output divides by 2^28, and losses are scaled up by 2^16 for float16."""


def ignores_grad_output(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """The product is zero for a zero grad_output, and linear in it, whatever its size."""
    case = cases.first
    if not case.values_comparable:
        return None
    factors = (0.0, *(2.0**exponent for exponent in EXPONENTS))
    hows = [{"cotangents": {name: g * factor for name, g in case.cotangents.items()}} for factor in factors]
    asked = attempt_each(candidate, case, hows, "backward with a grad_output of another size")
    finding, key = next(asked)
    if finding.failure is not None:
        return None
    for name, gradient in product(candidate, case, finding, key).gradients.items():
        expected = case.gradients[name]
        if gradient is None or expected is None:
            continue
        size = float(torch.linalg.vector_norm(reals(gradient).nan_to_num(0.0, 0.0, 0.0)))
        if not size <= LINEARITY_TOLERANCE * float(torch.linalg.vector_norm(expected.reference64)):
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{case.operand_names[name]}` is not zero (norm {size:.3g}) for a grad_output of zeros: "
                "multiply by grad_output instead of assuming ones",
            )
    found = (_scaled(candidate, case, e, *answer) for e, answer in zip(EXPONENTS, asked, strict=False))
    scaled = next(filter(None, found), None)
    if scaled is None or plain_is_right(candidate, case):
        return scaled
    return _not_linear(candidate, case)


def _scaled(candidate: Candidate, case: Case, exponent: int, finding: JobResult, key: str) -> Diagnosis | None:
    """A power of two times the grad_output gives as many times the product, in every bit but for underflow."""
    if finding.failure is not None:
        message = f"backward raises {first_line(finding.failure)} for a grad_output of 2^{exponent} times the size"
        return diagnose("ignores_grad_output", f"{message}: compute with it as it comes")
    operand = first_wrong(candidate, case, finding, key=key, factor=2.0**-exponent)
    if operand is None:
        return None
    what = "small one, as of a mean's loss" if exponent < 0 else "large one, as of a scaled loss"
    return diagnose(
        "ignores_grad_output",
        f"gradient of `{operand}` is right for a grad_output of about 1 and wrong for a {what} (2^{exponent} times): "
        "compute with it as it comes, without thresholds, clamps or narrower types",
    )


def _not_linear(candidate: Candidate, case: Case) -> Diagnosis | None:
    """The product of a sum is the sum of the products."""
    others = {name: torch.randn_like(value) for name, value in case.cotangents.items()}
    sums = {name: value + others[name] for name, value in case.cotangents.items()}
    products = []
    for cotangents in (case.cotangents, others, sums):
        asked = ask(candidate, case, cotangents=cotangents)
        finding = candidate.attempt(asked, "backward", "backward with a sum of grad_outputs")
        if finding.failure is not None:
            return None
        products.append(product(candidate, case, finding).gradients)
    for name in case.wrt:
        first, second, both = (gradients[name] for gradients in products)
        if first is None or second is None or both is None:
            continue
        gap = float(torch.linalg.vector_norm(reals(first) + reals(second) - reals(both)))
        size = float(torch.linalg.vector_norm(reals(first)) + torch.linalg.vector_norm(reals(second)))
        if gap > NONLINEAR_SHARE * size:
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{case.operand_names[name]}` is not linear in grad_output (off by {gap / size:.2g} of "
                "its size for a sum of two): multiply by grad_output once, and by nothing else that is made of it",
            )
    return None


def assumes_contiguous_grad_output(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """The same grad_output in other memory layouts gives the same gradients."""
    if not plain_is_right(candidate, cases.first):
        return _wrong_layout_inside(candidate, cases.first)
    layouts: list[tuple[CotangentLayout, Case]] = [
        ("expanded", cases.constant),
        ("transposed", cases.first),
        ("sliced", cases.first),
    ]
    for layout, case in layouts:
        doing = f"backward with {_article(layout)} grad_output"
        finding = candidate.attempt(ask(candidate, case, layout=layout), "backward", doing)
        if finding.failure is not None:
            return diagnose(
                "assumes_contiguous_grad_output",
                f"backward raises {first_line(finding.failure)} for {_article(layout)} grad_output: "
                "call grad_output.contiguous() before data_ptr()",
            )
        operand = first_wrong(candidate, case, finding)
        if operand is None or (layout == "expanded" and not plain_is_right(candidate, case)):
            continue
        return diagnose(
            "assumes_contiguous_grad_output",
            f"gradient of `{operand}` is right for a contiguous grad_output and wrong for {_article(layout)} one: "
            "call grad_output.contiguous() before data_ptr()",
            detail={"layout": layout},
        )
    return None


def _wrong_layout_inside(candidate: Candidate, case: Case) -> Diagnosis | None:
    """Wrong for our contiguous grad_output, since an operation in between hands the fused one another layout."""
    asked = ask(candidate, case, contiguous_grads=True)
    finding = candidate.attempt(asked, "backward", "backward with contiguous gradients inside")
    if finding.failure is not None or first_wrong(candidate, case, finding) is not None:
        return None
    return diagnose(
        "assumes_contiguous_grad_output",
        "the gradients are right once the grad_output that each function gets is made contiguous, and wrong as the "
        "operations behind the fused one hand it over: call grad_output.contiguous() before data_ptr()",
        detail={"layout": "inside"},
    )


def undefined_grad_output(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Of several outputs only one is used at a time; the gradients add up to those of all together."""
    case = cases.first
    if len(case.cotangents) < 2:
        return None
    total: dict[str, torch.Tensor] = {}
    for name, value in case.cotangents.items():
        doing = f"backward through {name} alone"
        finding = candidate.attempt(ask(candidate, case, cotangents={name: value}), "backward", doing)
        if finding.failure is not None:
            return diagnose("undefined_grad_output", f"{doing} raises {first_line(finding.failure)}")
        for operand, gradient in product(candidate, case, finding).gradients.items():
            if gradient is not None:
                total[operand] = total[operand] + gradient if operand in total else gradient
    for operand, expected in case.gradients.items():
        if expected is None:
            continue
        missing = operand not in total
        if (
            bool(expected.reference64.any())
            if missing
            else tolerance.check(expected, total[operand]).status == "failed"
        ):
            what = "None" if missing else "wrong"
            return diagnose(
                "undefined_grad_output",
                f"the gradient of `{case.operand_names[operand]}` is {what} when only one of the outputs is used: "
                "the others' grad_output is zero or None then",
            )
    return None


def _article(layout: str) -> str:
    return f"an {layout}" if layout.startswith("e") else f"a {layout}"
