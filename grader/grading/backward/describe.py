"""Words the diagnoses of gradients that are wrong, one for each code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from grader.grading.backward.classify import GradientFault
from grader.grading.backward.vjp import Product
from grader.grading.candidate import names
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import diagnose
from grader.grading.patterns import find_pattern
from grader.verdict.models import Diagnosis


def describe(faults: Sequence[GradientFault], variant: str) -> list[Diagnosis]:
    """A diagnosis for each code with all its operands; `grad_wrong`, which names no mistake, comes last."""
    by_code: dict[str, list[GradientFault]] = {}
    for fault in faults:
        by_code.setdefault(fault.code, []).append(fault)
    return [_diagnosis(by_code[code], variant) for code in sorted(by_code, key=lambda code: code == "grad_wrong")]


def with_patterns(oracle: Oracle, case: Case, faults: Sequence[GradientFault], actual: Product) -> list[GradientFault]:
    """The faults with what their wrong elements have in common; those with a pattern come first."""
    found = [_with_pattern(oracle, case, fault, actual) for fault in faults]
    return sorted(found, key=lambda fault: fault.code == "grad_wrong" and not fault.pattern)


def _with_pattern(oracle: Oracle, case: Case, fault: GradientFault, actual: Product) -> GradientFault:
    gradient, expected = actual.gradients[fault.name], case.gradients[fault.name]
    if fault.code != "grad_wrong" or fault.amount is None or gradient is None or expected is None:
        return fault
    pattern = find_pattern(oracle, case, fault.name, gradient, expected)
    if pattern is None:
        return fault
    return replace(fault, code=pattern.code, pattern=pattern.text, remedy=pattern.remedy)


def _diagnosis(group: Sequence[GradientFault], variant: str) -> Diagnosis:
    detail: dict[str, object] = {"operands": [fault.operand for fault in group], "variant": variant}
    if any(fault.factor is not None for fault in group):
        detail["factors"] = [fault.factor for fault in group]
    remedies = "; ".join(dict.fromkeys(fault.remedy for fault in group))
    what, amount = "; ".join(_sentences(group)), None
    first, *others = group
    if first.pattern:
        detail["pattern"] = first.pattern
    if first.amount is not None:
        what, amount, remedies = _at_length(first, others), first.amount, first.remedy
    where = f"variant {variant}"
    return diagnose(first.code, what, where=where, amount=amount, remedy=remedies, stage="backward", detail=detail)


def _at_length(first: GradientFault, others: Sequence[GradientFault]) -> str:
    """The first gradient by its pattern, and the others: those with patterns of their own, then the rest."""
    what = f"gradient of `{first.operand}` {first.pattern or f'is {first.text}'}"
    if first.pattern and first.text:
        what += f": {first.text}"
    own = [other for other in others if other.pattern]
    rest = [other for other in others if not other.pattern]
    what += "".join(f"; that of `{other.operand}` {other.pattern}" for other in own)
    return what + (f"; {names(_operands(rest))} {_are(rest)} wrong too" if rest else "")


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
