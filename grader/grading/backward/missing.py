"""Explains why a gradient does not exist: where in the candidate's graph it is lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from grader import protocol as p
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import add_graph_forward
from grader.grading.messages import MAX_LISTED, diagnose, fold, in_backticks
from grader.grading.oracle.case import Case, is_input
from grader.verdict.graph_ends import GraphEnds
from grader.verdict.models import Diagnosis

WRAP = "wrap the kernel in torch.autograd.Function"
WRAP_AND_RETURN = f"{WRAP} and return its apply()"
FOLLOWED = "compute it from the tensors themselves, with operations that autograd differentiates"
"""The remedy for a submission without a kernel, whose source does not show what ends the graph."""


def _mend(ends: GraphEnds, kernel: str = WRAP) -> str:
    """The remedy for a graph that ends: what the source has that ends it, and `kernel` if it has a kernel."""
    if not ends.places:
        return kernel if ends.own_kernel else FOLLOWED
    shown = " or ".join(ends.places[:MAX_LISTED])
    ended = shown if len(ends.places) == 1 else f"what ends the graph there, {shown}"
    return f"take out {ended}" + (f", or, for a kernel, {kernel}" if ends.own_kernel else "")


class Reason(NamedTuple):
    """Why one gradient is missing."""

    text: str
    remedy: str
    cut: bool = False
    """An operation's output on the way carries no graph, although the final output does."""
    position: int | None = None
    """Which input of the function in `text` gets None, from 0."""


NEVER = {
    "buffer": Reason("because ModelNew registers it as a buffer", "make it an nn.Parameter"),
    "frozen": Reason(
        "because ModelNew's parameter has requires_grad=False", "leave requires_grad of the reference's parameters True"
    ),
}
"""Why a tensor of ModelNew can have no gradient, whatever its forward does."""


def explain_missing(candidate: Candidate, case: Case, lost: Sequence[str], detached: Sequence[str]) -> list[Diagnosis]:
    """Diagnoses for the operands `lost` and the outputs `detached`, the cause first. Raises Stopped."""
    ends = candidate.graph_ends
    diagnoses = [_detached(case, detached, lost, ends)] if detached else []
    if len(detached) == len(case.cotangents):
        reasons = dict.fromkeys(lost, Reason("because the output is detached (grad_fn is None)", _mend(ends)))
    else:
        reasons = _reasons(candidate, case, lost)
    cut = [name for name in lost if reasons[name].cut]
    if cut and not detached:
        diagnoses.append(_cut(case, cut, ends))
    for code, group in (
        ("input_grad_none", [name for name in lost if is_input(name)]),
        ("param_grad_none", [name for name in lost if not is_input(name)]),
    ):
        if group:
            diagnoses.append(
                diagnose(
                    code,
                    "; ".join(_sentences(case, group, reasons)),
                    where=case.where,
                    remedy="; ".join(dict.fromkeys(reasons[name].remedy for name in group)),
                    detail={"operands": _displayed(case, group), "variant": case.name},
                )
            )
    same = len({reasons[name].text for name in lost}) == 1
    return fold(diagnoses[0], diagnoses[1:]) if len(diagnoses) > 1 and (detached or cut or same) else diagnoses


def recording_off(case: Case, ends: GraphEnds) -> Diagnosis:
    """The diagnosis of a forward that turns the recording of gradients off and leaves it so."""
    places = [place for place in ends.places if "set_grad_enabled" in place]
    remedy = f"take out {' or '.join(places)}" if places else "turn it on again"
    return diagnose(
        "output_detached",
        "the submission turns the recording of gradients off and leaves it off (torch.is_grad_enabled() is False "
        f"after the forward), so that a loss computed from {in_backticks(list(case.cotangents))} has no gradient",
        where=case.where,
        remedy=f"{remedy}, or use `with torch.no_grad():`, which ends with its block, for what needs no gradient",
        detail={"outputs": list(case.cotangents), "operands": _displayed(case, case.wrt)},
    )


def _detached(case: Case, detached: Sequence[str], lost: Sequence[str], ends: GraphEnds) -> Diagnosis:
    shown = _displayed(case, lost)
    verb = "does" if len(detached) == 1 else "do"
    consequence = f", so {in_backticks(shown)} {'gets' if len(shown) == 1 else 'get'} no gradient" if shown else ""
    return diagnose(
        "output_detached",
        f"{in_backticks(detached)} {verb} not require grad (grad_fn is None){consequence}",
        where=case.where,
        remedy=_mend(ends, WRAP_AND_RETURN),
        detail={"outputs": list(detached), "operands": shown},
    )


def _cut(case: Case, cut: Sequence[str], ends: GraphEnds) -> Diagnosis:
    shown = _displayed(case, cut)
    return diagnose(
        "output_detached",
        f"the output requires grad, but an op between it and {in_backticks(shown)} returns a detached tensor "
        "(grad_fn is None)",
        where=case.where,
        remedy=_mend(ends, WRAP_AND_RETURN),
        detail={"operands": shown, "variant": case.name},
    )


def _displayed(case: Case, operands: Sequence[str]) -> list[str]:
    return [case.operand_names[name] for name in operands]


def _sentences(case: Case, lost: Sequence[str], reasons: Mapping[str, Reason]) -> list[str]:
    """A sentence for each reason, with all operands that it applies to."""
    by_text: dict[str, list[str]] = {}
    for name in lost:
        by_text.setdefault(reasons[name].text, []).append(name)
    sentences = []
    for text, group in by_text.items():
        subject = f"gradient{'s' * (len(group) > 1)} of {in_backticks(_displayed(case, group))}"
        verb = "are" if len(group) > 1 else "is"
        positions = sorted({position for name in group if (position := reasons[name].position) is not None})
        if positions:
            inputs = " and ".join(ordinal(position + 1) for position in positions)
            sentences.append(
                f"{subject} {verb} None: {text} returns None for its {inputs} input{'s' * (len(positions) > 1)}"
            )
        else:
            sentences.append(f"{subject} {verb} missing {text}")
    return sentences


def _reasons(candidate: Candidate, case: Case, lost: Sequence[str]) -> dict[str, Reason]:
    operands = candidate.operands(case)
    job = candidate.script(case)
    job.put_inputs("a", case.inputs, requires_grad=True)
    add_graph_forward(job, case, "a")
    cotangents = job.cotangents(case.cotangents)
    job.step(p.Trace(tape="a", cotangents=cotangents, wrt=candidate.wrt(case)))
    result = candidate.attempt(job, "backward", "following the graph")
    traced = next(iter(result.of(p.Traced)), p.Traced())
    reached = {reach.operand: reach for reach in traced.operands}
    inputs = [operand for operand in operands if is_input(operand)]
    no_input_reached = bool(inputs) and not any(
        reached[operand].reached for operand in inputs if operand in reached and case.gradients[operand] is not None
    )

    def reason(name: str) -> Reason:
        if name not in operands:
            return Reason("because ModelNew has no parameter that corresponds to it", "keep Model's parameters")
        if (why := candidate.never_differentiated(case, name)) is not None:
            return NEVER[why]
        reach = reached.get(operands[name])
        return _unreached(name, reach, traced, candidate.graph_ends, no_input_reached=no_input_reached)

    return {name: reason(name) for name in lost}


def _unreached(
    name: str, reach: p.Reach | None, traced: p.Traced, ends: GraphEnds, *, no_input_reached: bool
) -> Reason:
    """Why the graph gives a tensor that ModelNew has and could differentiate no gradient."""
    if reach is None:
        return Reason("although the reference gives one", "return it from the Function's backward")
    if reach.reached:
        return _returned_none(reach)
    if traced.inner_leaves:
        shape = list(traced.inner_leaves[0])
        return Reason(
            f"because the graph ends at a tensor of shape {shape} made inside, as by detach().requires_grad_() or a "
            "new Parameter",
            "pass the tensor itself on",
        )
    if no_input_reached:
        op = "the fused op's" if ends.own_kernel else "an op's"
        return Reason(f"because {op} output is detached (grad_fn is None)", _mend(ends), cut=True)
    what = "input" if is_input(name) else "parameter"
    remedy = f"pass the {what} itself to Function.apply(), not its .data or .detach(), and where a kernel reads it "
    remedy = f"{remedy}outside autograd, {WRAP}" if ends.own_kernel else _mend(ends)
    return Reason("because no path leads from the output to it", remedy)


def _returned_none(reach: p.Reach) -> Reason:
    if reach.function is None or reach.position is None:
        text, remedy = "although the output leads back to it", "return it from the autograd.Function's backward"
        return Reason(text, remedy)
    text = f"the autograd.Function's backward (`{reach.function}`)"
    return Reason(text, "return a gradient there", position=reach.position)


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th, 21st."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
