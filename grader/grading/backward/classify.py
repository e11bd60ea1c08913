"""Names what is wrong with one gradient: none, zero, a multiple of the right one, NaN, or simply wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from grader.grading.backward.vjp import Product
from grader.grading.candidate import names
from grader.grading.compare import blocks, tolerance
from grader.grading.oracle.case import Case
from grader.verdict.stages import TensorCheck

SCALED_RESIDUAL = 1e-4
"""||c - a g|| / ||c|| below which c counts as a multiple of g."""
SCALE_DISTANCE = 1e-3
"""A factor closer to 1 than this is an error of another kind."""
VISIBLE = 1e-4
"""An element that is off by more than this, relative to itself and to the tensor's RMS, is counted as wrong."""


@dataclass(frozen=True)
class GradientFault:
    """One operand's fault. `said` follows "gradient of `x` is" in a sentence."""

    code: str
    name: str
    """Among the reference's operands: `input[0]`, `conv.weight`."""
    operand: str
    """Display name."""
    said: str
    remedy: str
    factor: float | None = None
    aside: str = ""
    """Said in brackets, before `size`, of all operands together."""
    size: float | None = None
    lengthy: bool = False
    """Said with figures of its own: of several such, only the first is said in full."""


class Description(NamedTuple):
    """What a diagnosis is made of."""

    code: str
    message: str
    detail: dict[str, object]


def classify(case: Case, found: Product) -> tuple[list[TensorCheck], list[GradientFault]]:
    """A row for every operand, and the faults among them."""
    checks, faults = [], []
    for name, expected in case.gradients.items():
        check, fault = _one(case, found, name, expected)
        if fault is not None and fault.code == "grad_wrong":
            fault = _in_anothers_place(case, found, fault)
        if fault is not None:
            check = check.model_copy(update={"message": f"gradient of `{fault.operand}` is {fault.said}"})
            faults.append(fault)
        checks.append(check)
    return checks, faults


def describe(faults: Sequence[GradientFault]) -> list[Description]:
    """One description a code, with a sentence that names all its operands; plainly wrong ones last."""
    grouped: dict[str, list[GradientFault]] = {}
    for fault in faults:
        grouped.setdefault(fault.code, []).append(fault)
    found = []
    for code in sorted(grouped, key=lambda code: code == "grad_wrong"):
        group = grouped[code]
        detail: dict[str, object] = {"operands": [fault.operand for fault in group]}
        if any(fault.factor is not None for fault in group):
            detail["factors"] = [fault.factor for fault in group]
        found.append(Description(code, _sentence(group), detail))
    return found


def _sentence(group: Sequence[GradientFault]) -> str:
    """The same thing said of several operands is said once; of what differs, the first in full."""
    said: dict[str, list[GradientFault]] = {}
    for fault in group:
        said.setdefault(fault.said, []).append(fault)
    if group[0].lengthy and len(said) > 1:
        others = names([fault.operand for fault in group[1:]])
        also = f"so {_are(len(group) - 1)} {others}"
        return f"gradient of `{group[0].operand}` is {group[0].said}; {also}: {group[0].remedy}"
    parts = []
    for text, faults in said.items():
        operands = [fault.operand for fault in faults]
        sizes = [f"{fault.size:.3g}" for fault in faults if fault.size is not None]
        aside = f" ({faults[0].aside} {' and '.join(sizes)})" if sizes else ""
        parts.append(f"gradient{'s' * (len(operands) > 1)} of {names(operands)} {_are(len(operands))} {text}{aside}")
    remedies = dict.fromkeys(fault.remedy for fault in group)
    return f"{'; '.join(parts)}: {'; '.join(remedies)}"


def _are(count: int) -> str:
    return "are" if count > 1 else "is"


def _one(
    case: Case, found: Product, name: str, expected: tolerance.Expected | None
) -> tuple[TensorCheck, GradientFault | None]:
    label = case.operand_names[name]
    gradient = found.gradients[name]
    if name in found.misshapen:
        info = found.misshapen[name]
        got, due = f"{info.dtype} {_shape(info.shape)}", _operand(case, name)
        said, remedy = f"{got} where its operand is {due}", "return a gradient shaped like its operand"
        if got == due:
            said, remedy = f"{got} without elements that could be copied out", "return a dense one on its device"
        fault = GradientFault("grad_shape", name, label, said, remedy)
        return TensorCheck(name=label, status="failed"), fault
    if name in case.optional and (gradient is None or expected is None):
        message = "the reference gives one under some seeds alone"
        return TensorCheck(name=label, status="not_checked", message=message), None
    if expected is None:
        return _against_none(name, label, gradient)
    if gradient is None:
        if not bool(expected.reference64.any()):
            return TensorCheck(
                name=label, status="passed", shape=expected.shape, message="zero in the reference, none here"
            ), None
        code = "input_grad_none" if name.startswith("input[") else "param_grad_none"
        fault = GradientFault(code, name, label, "None", "return it from the Function's backward")
        return TensorCheck(name=label, status="missing", shape=expected.shape), fault
    if not case.comparable("gradients", name) and not _gone(expected, gradient):
        return TensorCheck(
            name=label, status="not_checked", shape=expected.shape, message="the reference draws random numbers"
        ), None
    check = tolerance.check(expected, gradient)
    if check.status == "passed":
        return check, None
    return check, _wrong(name, label, check, gradient, expected)


def _gone(expected: tolerance.Expected, gradient: torch.Tensor) -> bool:
    """All zero, or not finite, where the reference's is another thing whatever it draws."""
    empty = not bool(gradient.any()) and bool(expected.reference64.any())
    return empty or (not bool(gradient.isfinite().all()) and bool(expected.reference64.isfinite().all()))


def _against_none(name: str, label: str, gradient: torch.Tensor | None) -> tuple[TensorCheck, GradientFault | None]:
    if gradient is None or not bool(gradient.any()):
        return TensorCheck(name=label, status="passed", message="none, as in the reference"), None
    fault = GradientFault(
        "unexpected_gradient",
        name,
        label,
        "there, where the reference gives none",
        "detach what the reference detaches",
        aside="up to",
        size=float(gradient.abs().max()),
    )
    return TensorCheck(name=label, status="failed"), fault


def _wrong(
    name: str, label: str, check: TensorCheck, gradient: torch.Tensor, expected: tolerance.Expected
) -> GradientFault:
    reference64 = expected.reference64.to(gradient.device, torch.complex128 if gradient.is_complex() else torch.float64)
    odd = ~torch.isfinite(gradient) & torch.isfinite(reference64)
    if bool(odd.any()):
        said = (
            f"NaN or infinite in {int(odd.sum())} of {odd.numel()} elements, first at {_first(odd)}, where the "
            "reference is finite"
        )
        remedy = "look for unwritten memory (empty_like) or a division by zero"
        return GradientFault("grad_nan", name, label, said, remedy, lengthy=True)
    if not bool(gradient.any()):
        remedy = "write its gradient buffer, and return that one"
        largest = _largest(expected)
        return GradientFault("grad_zero", name, label, "all zero", remedy, aside="in the reference up to", size=largest)
    factor = scale_of(gradient, expected.reference64)
    if factor is not None:
        shown = _factor(factor)
        said = f"{shown} times the reference's"
        return GradientFault("grad_scaled", name, label, said, _scale_remedy(factor, shown), factor)
    wrong = _wrong_elements(gradient, reference64)
    said = (
        f"wrong in {int(wrong.sum())} of {wrong.numel()} elements: relative error {check.rel_rms_error:.2g} "
        f"(float32 eager PyTorch: {check.yardstick_rel_rms_error:.2g}), worst at {list(check.worst_index or ())}: "
        f"{check.worst_candidate:.6g} for {check.worst_reference:.6g}"
    )
    return GradientFault("grad_wrong", name, label, said, _wrong_remedy(gradient, reference64, wrong), lengthy=True)


def _in_anothers_place(case: Case, found: Product, fault: GradientFault) -> GradientFault:
    """The same fault; where the gradient is that of another operand, saying so."""
    gradient = found.gradients[fault.name]
    for other, expected in case.gradients.items():
        if (
            other == fault.name
            or expected is None
            or gradient is None
            or gradient.numel() != expected.reference64.numel()
        ):
            continue
        there = gradient.reshape(expected.shape)
        if bool(expected.reference64.any()) and tolerance.check(expected, there).status == "passed":
            said = f"that of `{case.operand_names[other]}`"
            return replace(
                fault, said=said, remedy="return gradients in the order of forward's arguments", lengthy=False
            )
    return fault


def _wrong_elements(gradient: torch.Tensor, reference64: torch.Tensor) -> torch.Tensor:
    size = reference64.abs()
    return (gradient - reference64).abs() > VISIBLE * (size + size.square().mean().sqrt())


def _wrong_remedy(gradient: torch.Tensor, reference64: torch.Tensor, wrong: torch.Tensor) -> str:
    if (
        reference64.dim() == 2
        and reference64.shape[0] == reference64.shape[1]
        and not bool(_wrong_elements(gradient.T, reference64).any())
    ):
        return "it is the transpose of the right one"
    share = int(wrong.sum()) / max(wrong.numel(), 1)
    if not share:
        return (
            "its error is small and spread out: accumulate in float32 or wider, use no fast-math functions, and look "
            "for a small term that is left out"
        )
    if wrong.numel() >= 16 and share < 0.5:
        zeros = bool((gradient[wrong] == 0).all())
        where = "are zero: look for elements that no thread writes" if zeros else "stand out"
        return f"the wrong elements {where}; check the branches and the tail of the loop there"
    return "check its derivative by hand"


def scale_of(gradient: torch.Tensor, reference64: torch.Tensor) -> float | None:
    """The factor a with gradient = a * reference64 up to a small residual; None if there is none, or it is 1.

    Any two single numbers are multiples of each other: there the factor has to be a whole number or one over one.
    """
    c, g = blocks.reals(gradient).reshape(-1), blocks.reals(reference64.to(gradient.device)).reshape(-1)
    size = float(g @ g)
    if size == 0.0:
        return None
    factor = float(c @ g) / size
    residual = float(torch.linalg.vector_norm(c - factor * g)) / max(float(torch.linalg.vector_norm(c)), 1e-300)
    if not residual < SCALED_RESIDUAL or abs(factor - 1) <= SCALE_DISTANCE:
        return None
    return factor if int((g != 0).sum()) > 1 or _whole(factor) is not None or _whole(1 / factor) is not None else None


def _whole(number: float) -> int | None:
    """The whole number that this one is, up to rounding; None for 0 and for what is too large to tell."""
    nearest = round(number) if math.isfinite(number) else 0
    return nearest if nearest and abs(number - nearest) < 1e-4 * min(abs(number), 10.0) else None


def _factor(factor: float) -> str:
    """`2`, `-1`, `1/64`, or the number."""
    whole, part = _whole(factor), _whole(1 / factor)
    if whole is not None:
        return f"{whole}"
    if part is not None:
        return f"{'-' if part < 0 else ''}1/{abs(part)}"
    return f"{factor:.5g}"


def _scale_remedy(factor: float, shown: str) -> str:
    if shown == "-1":
        return "flip its sign"
    if abs(factor) < 1 and "/" in shown:
        return f"do not divide by {shown.rpartition('/')[2]}; sum over the batch instead of averaging, if it is a mean"
    if shown.lstrip("-").isdigit():
        return f"remove the factor {shown}, or look for a term that is added more than once"
    return "look for a constant that the chain rule does not have, or has and is missing here"


def _operand(case: Case, name: str) -> str:
    operand = case.operand(name)
    return f"{str(operand.dtype).removeprefix('torch.')} {_shape(operand.shape)}"


def _shape(shape: Sequence[int] | None) -> str:
    return "(" + ", ".join(str(extent) for extent in shape or ()) + ")"


def _first(mask: torch.Tensor) -> list[int]:
    return [int(i) for i in mask.nonzero()[0]]


def _largest(expected: tolerance.Expected) -> float:
    largest = float(expected.reference64.abs().nan_to_num(0.0, 0.0, 0.0).max())
    return largest if math.isfinite(largest) else 0.0
