"""Words the diagnoses of gradients that are wrong, one for each code."""

from __future__ import annotations

from collections.abc import Sequence

from grader.grading.backward.classify import GradientFault
from grader.grading.candidate import names
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis


def describe(faults: Sequence[GradientFault], variant: str) -> list[Diagnosis]:
    """A diagnosis for each code with all its operands; `grad_wrong`, which names no mistake, comes last."""
    by_code: dict[str, list[GradientFault]] = {}
    for fault in faults:
        by_code.setdefault(fault.code, []).append(fault)
    return [_diagnosis(by_code[code], variant) for code in sorted(by_code, key=lambda code: code == "grad_wrong")]


def _diagnosis(group: Sequence[GradientFault], variant: str) -> Diagnosis:
    detail: dict[str, object] = {"operands": [fault.operand for fault in group], "variant": variant}
    if any(fault.factor is not None for fault in group):
        detail["factors"] = [fault.factor for fault in group]
    remedies = "; ".join(dict.fromkeys(fault.remedy for fault in group))
    what, amount = "; ".join(_sentences(group)), None
    first, *others = group
    if first.amount is not None and others:
        what = f"gradient of `{first.operand}` is {first.text}; so {_are(others)} {names(_operands(others))}"
    if first.amount is not None:
        amount, remedies = first.amount, first.remedy
    return diagnose(first.code, what, where=f"variant {variant}", amount=amount, remedy=remedies, detail=detail)


def _sentences(group: Sequence[GradientFault]) -> list[str]:
    """A sentence for each text, with all operands that it applies to."""
    by_text: dict[str, list[GradientFault]] = {}
    for fault in group:
        by_text.setdefault(fault.text, []).append(fault)
    sentences = []
    for text, faults in by_text.items():
        sizes = [f"{fault.size:.3g}" for fault in faults if fault.size is not None]
        size = f" ({faults[0].size_of} {' and '.join(sizes)})" if sizes else ""
        subject = f"gradient{'s' * (len(faults) > 1)} of {names(_operands(faults))}"
        sentences.append(f"{subject} {_are(faults)} {text}{size}")
    return sentences


def _operands(faults: Sequence[GradientFault]) -> list[str]:
    return [fault.operand for fault in faults]


def _are(faults: Sequence[GradientFault]) -> str:
    return "are" if len(faults) > 1 else "is"
