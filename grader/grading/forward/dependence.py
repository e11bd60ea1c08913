"""Finds inputs and parameters on which either a wrong output or the right one depends, and not both."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.grading.candidate.candidate import Candidate
from grader.grading.compare import tolerance
from grader.grading.compare.blocks import CHECK_BYTES, same_bits
from grader.grading.forward.one_forward import add_forward
from grader.grading.messages import MAX_LISTED, in_backticks
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case, input_index
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import is_float, with_moved


def dependence(candidate: Candidate, oracle: Oracle, case: Case, output: str) -> tuple[str, str] | None:
    """A clause on operands whose change has no effect, or has one and should not, and its remedy.

    Inputs of a small case are asked, the first parameters, and buffers that training changes. Masks and integers are
    another draw's. Raises Stopped.
    """
    inputs = {f"input[{index}]": value for index, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    learned, before = oracle.traits(case).learned, oracle.models.constructed(case)
    trained = [
        name
        for name, value in case.state.items()
        if is_float(value) and (name in learned or not torch.equal(value.cpu(), before[name].cpu()))
    ]
    names = [*filter(lambda name: is_float(inputs[name]), inputs), *trained[: 2 * MAX_LISTED]]
    codes = [name for name in inputs if name not in names]
    nbytes = (len(names) + len(codes)) * case.nbytes + 2 * case.state_bytes
    if not case.values_comparable or nbytes > CHECK_BYTES:
        return None
    # A candidate may refuse codes that do not belong to the other inputs: they come last.
    others = {name: with_moved(case, name) for name in names} | _with_other_codes(oracle, case, codes)
    usual, *after = _outputs(candidate, [case, *others.values()], output)
    if usual is None or any(value is None for value in after[: len(names)]):
        return None
    ignored, used = dict[str, str](), list[str]()
    for (name, other), value in zip(others.items(), after, strict=True):
        if value is None:
            break
        label = case.operand_names.get(name, name)
        if same_bits(usual, value):
            ignored[name] = label
        elif (
            name not in codes
            and case.gradients.get(name) is None
            and not tolerance.passes(case.outputs[output].around(usual), value)
            and not _right_moves(oracle, case, other, output)
        ):
            used.append(label)
    # Only a large change of a small bias shows in the right output, and behind a saturated function in any.
    negated = {name: case.with_operand(name, -case.operand(name)) for name in ignored if name not in codes}
    if negated:
        usual, *after = _outputs(candidate, [case, *negated.values()], output)
        for name, value in zip(negated, after, strict=True):
            if usual is None or value is None or not same_bits(usual, value):
                del ignored[name]
    for name in [*ignored]:
        changed = [others[name], *([negated[name]] if name in negated else [])]
        if not any(_right_moves(oracle, case, other, output) for other in changed):
            del ignored[name]
    if ignored:
        remedy = "compute it from them in every forward, and from no copy that was made before"
        return f"a change of {in_backticks(list(ignored.values()))} has no effect on it", remedy
    if used:
        remedy = f"leave {in_backticks(used)} out, or mask what reads them there"
        return f"it follows {in_backticks(used)}, and the reference's does not", remedy
    return None


def _with_other_codes(oracle: Oracle, case: Case, names: Sequence[str]) -> dict[str, Case]:
    """For each of these inputs that draws differ in, the case with another draw of it alone."""
    if not names:
        return {}
    drawn = oracle.models.draw(case.variant)[1]
    changed = {name: drawn[input_index(name)] for name in names}
    return {
        name: case.with_operand(name, value)
        for name, value in changed.items()
        if isinstance(value, torch.Tensor) and not torch.equal(value, case.operand(name))
    }


def _outputs(candidate: Candidate, cases: Sequence[Case], output: str) -> list[torch.Tensor | None]:
    """The output of a forward of each case."""
    job, last = candidate.script(cases[0]), cases[0]
    for turn, case in enumerate(cases):
        add_forward(job, candidate, case, str(turn), before=last)
        last = case
    job.step(p.Drop())
    result = candidate.attempt(job, "forward", "forwards with one operand changed")
    return [result.sealed.get(p.output_source(turn, output)) for turn in range(len(cases))]


def _right_moves(oracle: Oracle, case: Case, other: Case, output: str) -> bool:
    """Whether the right output changes by more than rounding; not where the reference refuses the other case."""
    try:
        expected, due = case.outputs[output], variations.outputs_of(oracle, other)[output]
    except ReferenceRefused:
        return False
    defined = not due.reference64.isnan().any()  # a negated variance has no root
    return defined and not tolerance.passes(expected, due.reference64.to(expected.dtype))
