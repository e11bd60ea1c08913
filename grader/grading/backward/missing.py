"""Why a gradient does not exist: where in the candidate's graph it is lost, in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grader import protocol as p
from grader.grading.backward.vjp import add_forward
from grader.grading.candidate import Candidate, names
from grader.grading.oracle.case import Case
from grader.grading.outcome import diagnose
from grader.verdict.models import Diagnosis

WRAP = "wrap the kernel in torch.autograd.Function"


class Reason(NamedTuple):
    """`cut`: an operation's output on the way carries no graph, although the final output does."""

    text: str
    cut: bool = False
    position: int | None = None
    """Which input of the function in `text` gets None, from 0."""


def explain_missing(
    candidate: Candidate, case: Case, lost: Sequence[str], detached: Sequence[str], where: str
) -> list[Diagnosis]:
    """Diagnoses for the operands `lost` and the outputs `detached`, the cause first."""
    found = [_detached(case, detached, lost)] if detached else []
    if len(detached) == len(case.cotangents):
        reasons = dict.fromkeys(lost, Reason(f"because the output is detached (grad_fn is None): {WRAP}"))
    else:
        reasons = _reasons(candidate, case, lost)
    cut = [name for name in lost if reasons[name].cut]
    if cut and not detached:
        found.append(_cut(case, cut, where))
    for code, group in (
        ("input_grad_none", [name for name in lost if name.startswith("input[")]),
        ("param_grad_none", [name for name in lost if not name.startswith("input[")]),
    ):
        if group:
            shown = [case.operand_names[name] for name in group]
            message = "; ".join(_sentences(case, group, reasons)) + where
            found.append(diagnose(code, message, detail={"operands": shown, "variant": case.name}))
    return found


def _detached(case: Case, detached: Sequence[str], lost: Sequence[str]) -> Diagnosis:
    shown = [case.operand_names[name] for name in lost]
    consequence = f", so {names(shown)} {'gets' if len(shown) == 1 else 'get'} no gradient" if shown else ""
    return diagnose(
        "output_detached",
        f"{names(detached)} does not require grad (grad_fn is None){consequence}: {WRAP} and return its apply()",
        detail={"outputs": list(detached), "operands": shown},
    )


def _cut(case: Case, cut: Sequence[str], where: str) -> Diagnosis:
    shown = [case.operand_names[name] for name in cut]
    return diagnose(
        "output_detached",
        f"the output requires grad, but an op between it and {names(shown)} returns a detached tensor (grad_fn is "
        f"None): {WRAP} and return its apply(){where}",
        detail={"operands": shown, "variant": case.name},
    )


def _sentences(case: Case, lost: Sequence[str], reasons: Mapping[str, Reason]) -> list[str]:
    """One for each reason, naming all operands that it holds for."""
    grouped: dict[str, list[str]] = {}
    for name in lost:
        grouped.setdefault(reasons[name].text, []).append(name)
    found = []
    for text, group in grouped.items():
        subject = f"gradient{'s' * (len(group) > 1)} of {names([case.operand_names[name] for name in group])}"
        verb = "are" if len(group) > 1 else "is"
        positions = sorted({position for name in group if (position := reasons[name].position) is not None})
        if positions:
            inputs = " and ".join(ordinal(position + 1) for position in positions)
            there = f"its {inputs} input{'s' * (len(positions) > 1)}"
            found.append(f"{subject} {verb} None: {text} returns None for {there}: return a gradient there")
        else:
            found.append(f"{subject} {verb} missing {text}")
    return found


def _reasons(candidate: Candidate, case: Case, lost: Sequence[str]) -> dict[str, Reason]:
    operands = candidate.operands(case)
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=True)
    add_forward(script, case, "a")
    cotangents = script.cotangents(case.cotangents)
    script.step(p.Trace(tape="a", cotangents=cotangents, wrt=tuple(operands.values())))
    finding = candidate.attempt(script, "backward", "following the graph")
    traced = next(iter(finding.of(p.Traced)), p.Traced())
    reached = {reach.operand: reach for reach in traced.operands}
    inputs = [operand for operand in operands if operand.startswith("input[")]
    no_input_reached = bool(inputs) and not any(
        reached[operand].reached for operand in inputs if operand in reached and case.gradients[operand] is not None
    )
    found = {}
    for name in lost:
        reach = reached.get(operands.get(name, ""))
        if name not in operands:
            found[name] = Reason("because ModelNew has no parameter that corresponds to it: keep Model's parameters")
        elif reach is None:
            found[name] = Reason("although the reference gives one: return it from the Function's backward")
        elif reach.reached:
            found[name] = _returned_none(reach)
        elif traced.inner_leaves:
            shape = list(traced.inner_leaves[0])
            found[name] = Reason(
                f"because the graph ends at a tensor of shape {shape} made inside, as detach().requires_grad_() makes "
                "it: hand the tensor itself on"
            )
        elif no_input_reached:
            found[name] = Reason(f"because the fused op's output is detached (grad_fn is None): {WRAP}", cut=True)
        else:
            what = "input" if name.startswith("input[") else "parameter"
            found[name] = Reason(
                f"because no path leads from the output to it: hand the {what} itself to Function.apply(), not its "
                f".data or .detach(), and where a kernel reads it outside autograd, {WRAP}"
            )
    return found


def _returned_none(reach: p.Reach) -> Reason:
    if reach.function is None or reach.position is None:
        return Reason("although the output leads back to it: return it from the autograd.Function's backward")
    return Reason(f"the autograd.Function's backward (`{reach.function}`)", position=reach.position)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
