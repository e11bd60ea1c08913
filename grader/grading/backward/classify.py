"""Classifies each gradient, such as missing, zero or a multiple."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from grader.grading.candidate.vjp import Product
from grader.grading.compare import ties, tolerance
from grader.grading.compare.blocks import are_finite, in_blocks, norm, unravel
from grader.grading.compare.expected import ELEMENT_TOLERANCE, Expected
from grader.grading.compare.scaling import factor_text, scale_of, scale_remedy
from grader.grading.messages import in_backticks, shape_text
from grader.grading.oracle.case import Case, is_input
from grader.grading.patterns.large_tensors import stretch_of, wrong_places
from grader.grading.patterns.pattern import Pattern, nothing_found
from grader.verdict.stages import TensorCheck

STEP_BY_STEP = "compare backward's intermediate results with autograd's, step by step"
"""The remedy for wrong values in which nothing points to a mistake."""


@dataclass(frozen=True)
class GradientFault:
    """One operand's fault. `text` follows "gradient of `x` is" in a sentence."""

    code: str
    name: str
    """The reference's operand: `input[0]`, `conv.weight`."""
    operand: str
    """Display name."""
    text: str
    remedy: str
    amount: str | None = None
    """By how much it is wrong, if the fault has figures of its own."""
    factor: float | None = None
    size: float | None = None
    """The largest element of the gradient that should, or should not, be there."""
    size_of: str = ""
    """What `size` measures, in front of the number."""
    pattern: Pattern | None = None
    """What the wrong elements have in common."""
    slight: bool = False
    """The error is no larger than what rounding to a narrower type leaves."""

    @property
    def explained(self) -> bool:
        """Whether something is known of its cause."""
        return self.code != "grad_wrong" or self.pattern is not None or self.amount is None

    @property
    def vague(self) -> bool:
        """Whether its pattern says which elements are wrong, but not what value they have."""
        return self.pattern is not None and self.pattern.vague

    @property
    def has_form(self) -> bool:
        """Whether the wrong values have a form that a mistake elsewhere may have given them."""
        with_pattern = self.code == "grad_wrong" and self.pattern is not None and not self.pattern.vague
        return with_pattern or self.code in ("grad_scaled", "grad_zero")

    def with_pattern(self, pattern: Pattern) -> GradientFault:
        """The same fault with what its wrong elements have in common."""
        return replace(self, code=pattern.code, pattern=pattern, remedy=pattern.remedy, factor=None)


def classify(case: Case, actual: Product) -> tuple[list[TensorCheck], list[GradientFault]]:
    """A row for every operand, and the faults among them."""
    checks, faults = [], []
    compared = {
        name: (expected, gradient)
        for name, expected in case.gradients.items()
        if expected is not None and (gradient := actual.gradients[name]) is not None
        if name not in actual.misshapen
        if case.comparable("gradients", name) or _degenerate(expected, gradient)
    }
    found = dict(zip(compared, tolerance.check_each(list(compared.values())), strict=True))
    for name, expected in case.gradients.items():
        check, fault = _classify_one(case, actual, name, expected, found.get(name))
        if fault is not None and fault.code == "grad_wrong":
            fault = _in_anothers_place(case, actual, fault)
        if fault is not None:
            text = f"is {fault.text}" if fault.text else str(fault.pattern)
            amount = f", {fault.amount}" if fault.amount else ""
            check = check.model_copy(update={"message": f"gradient of `{fault.operand}` {text}{amount}"})
            faults.append(fault)
        checks.append(check)
    return checks, faults or _wrong_together(case, actual)


def _wrong_together(case: Case, actual: Product) -> list[GradientFault]:
    """The fault of gradients that are each right for some choice at ties, but not together for any."""
    tied = {
        name: ties.TiedInput(expected.ties, expected.reference64, gradient, ELEMENT_TOLERANCE)
        for name, expected in case.gradients.items()
        if expected is not None and (gradient := actual.gradients[name]) is not None
        if expected.ties is not None and expected.ties.operand is not None and case.comparable("gradients", name)
    }
    if not tied or not ties.wrong_together(list(tied.values())):
        return []
    name, *others = tied
    text = "wrong in what tied elements get together"
    if others:
        text += f", with {in_backticks([case.operand_names[other] for other in others])}"
    return [GradientFault("grad_wrong", name, case.operand_names[name], text, ties.REMEDY)]


def _classify_one(
    case: Case, actual: Product, name: str, expected: Expected | None, check: TensorCheck | None
) -> tuple[TensorCheck, GradientFault | None]:
    """The row and the fault of an operand; `check` compares the gradients, if there are two to compare."""
    label = case.operand_names[name]
    gradient = actual.gradients[name]
    if name in actual.misshapen:
        return TensorCheck(name=label, status="failed"), _misshapen(case, actual, name)
    if name in case.optional and (gradient is None or expected is None):
        message = "the reference gives a gradient under some seeds only"
        return TensorCheck(name=label, status="not_checked", message=message), None
    if expected is None:
        return _against_none(name, label, gradient)
    if gradient is None:
        if expected.is_zero:
            message = "zero in the reference, none here"
            return TensorCheck(name=label, status="passed", shape=expected.shape, message=message), None
        code = "input_grad_none" if is_input(name) else "param_grad_none"
        fault = GradientFault(code, name, label, "None", "return it from the Function's backward")
        return TensorCheck(name=label, status="missing", shape=expected.shape), fault
    if check is None:
        message = "rounding decides it" if case.gradients_are_noise else "the reference draws random numbers"
        return TensorCheck(name=label, status="not_checked", shape=expected.shape, message=message), None
    return check, None if check.status == "passed" else _fault_of(name, label, check, gradient, expected)


def _misshapen(case: Case, actual: Product, name: str) -> GradientFault:
    info, operand = actual.misshapen[name], case.operand(name)
    got = f"{info.dtype} {shape_text(info.shape)}"
    due = f"{str(operand.dtype).removeprefix('torch.')} {shape_text(operand.shape)}"
    text, remedy = f"{got} where its operand is {due}", "return a gradient shaped like its operand"
    if got == due:
        text, remedy = f"{got} without elements that could be copied out", "return a dense one on its device"
    if info.is_sparse:
        text, remedy = "sparse, where the reference's is dense", "return a dense one: few optimizers take others"
    return GradientFault("grad_shape", name, case.operand_names[name], text, remedy)


def _degenerate(expected: Expected, gradient: torch.Tensor) -> bool:
    """All zero, or not finite, where the reference's gradient is not, whatever it draws."""
    empty = not bool(gradient.any()) and bool(expected.reference64.any())
    return empty or (not are_finite([gradient])[0] and are_finite([expected.reference64])[0])


def _against_none(name: str, label: str, gradient: torch.Tensor | None) -> tuple[TensorCheck, GradientFault | None]:
    if gradient is None or not bool(gradient.any()):
        return TensorCheck(name=label, status="passed", message="none, as in the reference"), None
    fault = GradientFault(
        "unexpected_gradient",
        name,
        label,
        "there, where the reference gives none",
        "detach what the reference detaches, freeze what it freezes",
        size=float(gradient.abs().max()),
        size_of="up to",
    )
    return TensorCheck(name=label, status="failed"), fault


def _fault_of(name: str, label: str, check: TensorCheck, gradient: torch.Tensor, expected: Expected) -> GradientFault:
    places = wrong_places(gradient, expected.reference64)
    if places.odd:
        text = f"NaN or infinite in {places.odd} of {gradient.numel()} elements"
        amount = f"first at {list(unravel(places.first_odd, gradient.shape))}, where the reference is finite"
        remedy = "look for unwritten memory (empty_like) or a division by zero"
        return GradientFault("grad_nan", name, label, text, remedy, amount)
    if not bool(gradient.any()):
        remedy = "compute it, and return that instead of zeros or of a buffer that is never written"
        largest = _largest(expected)
        size_of = "in the reference up to"
        return GradientFault("grad_zero", name, label, "all zero", remedy, size=largest, size_of=size_of)
    factor = scale_of(gradient, expected.reference64)
    if factor is not None:
        text = f"{factor_text(factor)} times the reference's"
        return GradientFault("grad_scaled", name, label, text, scale_remedy(factor), factor=factor)
    return wrong_fault(name, label, check, gradient, expected)


def wrong_fault(name: str, label: str, check: TensorCheck, gradient: torch.Tensor, expected: Expected) -> GradientFault:
    """The fault of a gradient of which no more is known than where it is wrong, and by how much."""
    places = wrong_places(gradient, expected.reference64)
    worst = check.worst_index or ()
    ours, due = (  # numbers, complex where the tensor is
        tensor[worst].item() for tensor in (gradient, expected.reference64)
    )
    amount = (
        f"relative error {check.rel_rms_error:.2g} ({check.dtype} eager PyTorch: {check.baseline_rel_rms_error:.2g}), "
        f"worst at {list(worst)}: {ours:.6g} for {due:.6g}"
    )
    remedy = f"{nothing_found(gradient)}; {STEP_BY_STEP}"
    if not places.wrong:  # errors are small beside the tensor: the comparison says which are not beside their elements
        seen = (check.message or "").removeprefix(f"{expected.name} ")
        return GradientFault("grad_wrong", name, label, "", remedy, "", pattern=Pattern(seen, remedy, vague=True))
    text = f"wrong in {places.wrong} of {gradient.numel()} elements"
    slight = (check.rel_rms_error or 0.0) <= torch.finfo(torch.bfloat16).eps
    fault = GradientFault("grad_wrong", name, label, text, remedy, amount, slight=slight)
    where = stretch_of(places, expected.shape)
    return fault if where is None else fault.with_pattern(where)


def _in_anothers_place(case: Case, actual: Product, fault: GradientFault) -> GradientFault:
    """The same fault; if the gradient is that of another operand, it says so."""
    gradient = actual.gradients[fault.name]
    assert gradient is not None, "there is something wrong in it"
    size = norm(gradient)
    for other, expected in case.gradients.items():
        if (
            other == fault.name
            or expected is None
            or gradient.dtype is not expected.dtype
            or gradient.numel() != expected.reference64.numel()
            or abs(size - expected.norm) > 0.01 * expected.norm  # rounding changes a norm by less
        ):
            continue
        reshaped = gradient.reshape(expected.shape)
        if bool(expected.reference64.any()) and tolerance.passes(expected, reshaped):
            label, theirs = case.operand_names[other], actual.gradients[other]
            kept = theirs is not None and tolerance.passes(expected, theirs)
            remedy = "return gradients in the order of forward's arguments"
            remedy = f"compute its own: `{label}` rightly gets that one" if kept else remedy
            return replace(fault, text=f"that of `{label}`", remedy=remedy, amount=None)
    return fault


def _largest(expected: Expected) -> float:
    return max(float(part.abs().nan_to_num(0.0, 0.0, 0.0).max()) for (part,) in in_blocks(expected.reference64))
