"""Words the diagnoses of wrong gradients, one for each cause."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from grader.grading.backward.classify import STEP_BY_STEP, GradientFault
from grader.grading.backward.factors import with_factors
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import Product, gradients_of
from grader.grading.compare import tolerance
from grader.grading.messages import diagnose, in_backticks
from grader.grading.oracle import known_mistakes
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.patterns.pattern import within_time
from grader.grading.patterns.rounded import confirmed_roundings
from grader.grading.patterns.search import find_pattern, patterns_by_runs
from grader.verdict.models import Diagnosis


def describe(faults: Sequence[GradientFault], case_name: str) -> list[Diagnosis]:
    """A diagnosis for each code with all its operands; `grad_wrong`, which names no mistake, comes last.

    A gradient of which nothing is known is wrong for the reason that another one is, so the first diagnosis names it.
    """
    clear = [fault for fault in faults if fault.explained and not fault.vague]
    vague = [fault for fault in faults if fault.explained and fault.vague]
    leading = clear or vague or faults
    by_code: dict[str, list[GradientFault]] = {}
    for fault in leading:
        by_code.setdefault(fault.code, []).append(fault)
    groups = sorted(by_code.values(), key=lambda group: group[0].code == "grad_wrong")
    rest = [fault for fault in faults if fault not in leading]
    return [_diagnosis(group, case_name, () if index else rest) for index, group in enumerate(groups)]


def with_patterns(
    candidate: Candidate, oracle: Oracle, case: Case, faults: Sequence[GradientFault], actual: Product
) -> list[GradientFault]:
    """The faults with what their wrong elements have in common; those with a pattern come first."""
    faults = with_factors(candidate, oracle, case, faults, actual)
    wrong = {fault.name: actual.gradients[fault.name] for fault in faults if not fault.explained or fault.vague}
    rounded = confirmed_roundings(oracle, case, "gradients", wrong, partial(gradients_of, candidate))
    found = [
        fault if rounded and fault.slight else _with_pattern(candidate, oracle, case, fault, actual)
        for fault in faults
        if fault.name not in rounded
    ]
    found += [fault.with_pattern(rounded[fault.name]) for fault in faults if fault.name in rounded]
    open_ = {fault.name: actual.gradients[fault.name] for fault in found if not fault.explained or fault.vague}
    others = {fault.name: actual.gradients[fault.name] for fault in found if fault.has_form}
    by_runs = patterns_by_runs(oracle, case, open_, partial(gradients_of, candidate), others) if open_ else {}
    found.sort(key=lambda fault: fault.name in others and fault.name in by_runs)  # behind those with amounts
    found = [
        fault.with_pattern(by_runs[fault.name])
        if fault.name in by_runs
        else replace(fault, remedy=within_time(fault.remedy, oracle.budget))
        for fault in found
    ]
    known = {fault.name for fault in faults}
    # A gradient that cancels, as that of a bias before a norm, is right whatever its steps do.
    right = [
        case.operand_names[name]
        for name, value in case.gradients.items()
        if value is not None and name not in known and value.norm > tolerance.BASELINE_FACTOR_L2 * value.error_l2
    ]
    if right:
        found = [replace(fault, remedy=fault.remedy.replace(STEP_BY_STEP, _apart(right))) for fault in found]
    return sorted(found, key=lambda fault: fault.code == "grad_wrong" and not fault.pattern)


def _apart(right: Sequence[str]) -> str:
    """The remedy where nothing points to a mistake, but other gradients are right."""
    they, do = ("they", "do") if len(right) > 1 else ("it", "does")
    whole = f"the gradient{'s' * (they == 'they')} of {in_backticks(right)} {'are' if they == 'they' else 'is'} right"
    return f"{whole}: look in the steps that {they} {do} not need"


def _with_pattern(
    candidate: Candidate, oracle: Oracle, case: Case, fault: GradientFault, actual: Product
) -> GradientFault:
    gradient, expected = actual.gradients[fault.name], case.gradients[fault.name]
    if (fault.explained and not fault.vague) or gradient is None or expected is None:
        return fault

    def other_error(other: Case) -> torch.Tensor | None:
        value, due = (gradients_of(candidate, other).get(fault.name), known_mistakes.gradients(oracle, other, "none"))
        return None if value is None or fault.name not in due else value - due[fault.name].reference64.to(value.device)

    pattern = find_pattern(oracle, case, fault.name, gradient, expected, other_error)
    # One vague pattern says no more than another.
    return fault if pattern is None or (fault.explained and pattern.vague) else fault.with_pattern(pattern)


def _diagnosis(group: Sequence[GradientFault], case_name: str, rest: Sequence[GradientFault]) -> Diagnosis:
    """The diagnosis of gradients with one code; those in the `rest` are wrong too."""
    detail: dict[str, object] = {"operands": _operands([*group, *rest]), "variant": case_name}
    if any(fault.factor is not None for fault in group):
        detail["factors"] = [fault.factor for fault in group]
    remedies = "; ".join(dict.fromkeys(fault.remedy for fault in group))
    what, amount = "; ".join(_sentences(group)), None
    first, *others = group
    if first.pattern is not None:
        detail["pattern"] = str(first.pattern)
    if first.amount is not None:
        what, amount, remedies = _at_length(first, others), first.amount, first.remedy
    if rest:
        what += f"; {in_backticks(_operands(rest))} {_are(rest)} wrong too"
    where = f"variant {case_name}"
    return diagnose(first.code, what, where=where, amount=amount, remedy=remedies, stage="backward", detail=detail)


def _at_length(first: GradientFault, others: Sequence[GradientFault]) -> str:
    """The first gradient by its pattern, and the others: those with its mistake, with one of their own, the rest."""
    what = f"gradient of `{first.operand}` {first.pattern or f'is {first.text}'}"
    if first.pattern is not None and first.text:
        what += f": {first.text}"
    by_mistake: dict[tuple[str, str], list[GradientFault]] = {}
    for other in others:
        by_mistake.setdefault(_mistake(other), []).append(other)
    rest = by_mistake.pop(("", ""), [])
    mistake, _ = _mistake(first)
    likewise = by_mistake.pop(_mistake(first), [])
    what += f"; likewise {in_backticks(_operands(likewise))}" if likewise else ""
    for key in [key for key in by_mistake if key[0] == mistake]:
        what += f"; likewise {in_backticks(_operands(by_mistake.pop(key)))}{key[1]}"
    for (its_mistake, calls), (one, *more) in by_mistake.items():
        what += f"; that of `{one.operand}` {its_mistake}{calls}"
        what += f"; likewise {in_backticks(_operands(more))}" if more else ""
    return what + (f"; {in_backticks(_operands(rest))} {_are(rest)} wrong too" if rest else "")


def _mistake(fault: GradientFault) -> tuple[str, str]:
    """The text of its pattern, and in which calls of a function the mistake is made; empty without a pattern."""
    return ("", "") if fault.pattern is None else (fault.pattern.text, fault.pattern.calls)


def _sentences(group: Sequence[GradientFault]) -> list[str]:
    """A sentence for each text, with all operands that it applies to."""
    by_text: dict[str, list[GradientFault]] = {}
    for fault in group:
        by_text.setdefault(fault.text, []).append(fault)
    sentences = []
    for text, faults in by_text.items():
        sizes = [f"{fault.size:.3g}" for fault in faults if fault.size is not None]
        size = f" ({faults[0].size_of} {' and '.join(sizes)})" if sizes else ""
        subject = f"gradient{'s' * (len(faults) > 1)} of {in_backticks(_operands(faults))}"
        sentences.append(f"{subject} {_are(faults)} {text}{size}")
    return sentences


def _operands(faults: Sequence[GradientFault]) -> list[str]:
    return [fault.operand for fault in faults]


def _are(faults: Sequence[GradientFault]) -> str:
    return "are" if len(faults) > 1 else "is"
