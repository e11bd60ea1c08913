"""Runs that a right gradient passes and a plausible mistake does not, each on a small case.

An experiment puts one question to the candidate and answers with a diagnosis, or with None when all is well. A step
that raises is answered by the experiment's own code, since the plain product of the same case ran.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch

from grader import protocol as p
from grader.models import Device, Diagnosis
from grader.remote import Finding, Script, TensorSpec
from grader.remote.script import CotangentLayout
from grader.stages import numerics
from grader.stages.backward.own_differences import differences
from grader.stages.backward.vjp import add_forward, ask, export_gradients, product
from grader.stages.candidate import Candidate, names
from grader.stages.cases import Case
from grader.stages.outcome import diagnose, first_line
from grader.stages.outputs import same_bits

REPEATS = 5
LINEARITY_TOLERANCE = 1e-4
"""On ||vjp(0)|| against ||vjp(g)||: a gradient that does not follow grad_output is off by its own size."""
NONLINEAR_SHARE = 2e-2
"""On ||vjp(g) + vjp(h) - vjp(g + h)||: wide enough for a backward that computes in bfloat16."""
CARRIED_SHARE = 1e-3
"""Two equal calls that differ by more than this share something other than rounding."""
MAX_FROZEN_SUBSETS = 8


@dataclass(frozen=True)
class Cases:
    """What the experiments run on: the same sizes and parameters, other inputs."""

    first: Case
    second: Case
    constant: Case
    """Its grad_output is constant along one dimension, so that it can be given expanded."""


Experiment = Callable[[Candidate, Cases], Diagnosis | None]


def ignores_grad_output(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """The product is zero for a zero grad_output, and linear in it."""
    case = cases.first
    if not case.values_comparable:
        return None
    zero = {name: torch.zeros_like(value) for name, value in case.cotangents.items()}
    finding = candidate.attempt(ask(candidate, case, cotangents=zero), "backward", "backward with a zero grad_output")
    if finding.failure is not None:
        return None
    for name, gradient in product(candidate, case, finding).gradients.items():
        expected = case.gradients[name]
        if gradient is None or expected is None:
            continue
        size = float(torch.linalg.vector_norm(gradient.double().nan_to_num(0.0, 0.0, 0.0)))
        if not size <= LINEARITY_TOLERANCE * float(torch.linalg.vector_norm(expected.golden)):
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{case.operand_names[name]}` is not zero (norm {size:.3g}) for a grad_output of zeros: "
                "multiply by grad_output instead of assuming ones",
            )
    return None if _plain_is_right(candidate, case) else _not_linear(candidate, case)


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
        gap = float(torch.linalg.vector_norm(first.double() + second.double() - both.double()))
        size = float(torch.linalg.vector_norm(first.double()) + torch.linalg.vector_norm(second.double()))
        if gap > NONLINEAR_SHARE * size:
            return diagnose(
                "ignores_grad_output",
                f"gradient of `{case.operand_names[name]}` is not linear in grad_output (off by {gap / size:.2g} of "
                "its size for a sum of two): multiply by grad_output once, and by nothing else that is made of it",
            )
    return None


def assumes_contiguous_grad_output(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """The same grad_output in other memory layouts gives the same gradients."""
    if not _plain_is_right(candidate, cases.first):
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
        if operand is None or (layout == "expanded" and not _plain_is_right(candidate, case)):
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


def stale_saved_state(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Forward A, forward B, then differentiate A."""
    first, second = cases.first, cases.second
    script = candidate.script(first)
    script.put_inputs("a", first.inputs, requires_grad=True)
    script.put_inputs("b", second.inputs, requires_grad=True)
    add_forward(script, first, "a")
    add_forward(script, second, "b")
    _backward(script, candidate, first, "a")
    finding = candidate.attempt(script, "backward", "backward of the first of two forwards")
    if finding.failure is not None:
        return diagnose(
            "stale_saved_state", f"the backward of the first of two forwards raises {first_line(finding.failure)}"
        )
    operand = first_wrong(candidate, first, finding)
    if operand is None:
        return None
    return diagnose(
        "stale_saved_state",
        f"after forward A and forward B, the gradient of `{operand}` for A is wrong: "
        "keep what backward needs with ctx.save_for_backward, not in a global or on the module",
    )


def saved_tensor_mutated(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Inputs, parameters and grad_outputs are bitwise what they were before forward and backward."""
    case = cases.first
    script = ask(candidate, case)
    held = {f"input:a:{i}": value for i, value in enumerate(case.inputs) if isinstance(value, torch.Tensor)}
    labels = {f"input:a:{i}": case.operand_names.get(f"input[{i}]", f"input[{i}]") for i in range(len(case.inputs))}
    for ours, theirs in candidate.prepare(case).names.items():
        if ours not in case.buffers:
            held[f"state:model:{theirs}"] = case.state[ours].view(candidate.shape(case, ours))
            labels[f"state:model:{theirs}"] = ours
    script.export({source: _spec(value) for source, value in held.items()})
    given = {f"cotangent:a:{name}": value for name, value in case.cotangents.items()}
    script.export({source: _spec(value) for source, value in given.items()})
    finding = candidate.attempt(script, "backward", "comparing inputs and parameters after a backward")
    if finding.failure is not None:
        return None
    overwritten = [
        source.removeprefix("cotangent:a:")
        for source, value in given.items()
        if source in finding.sealed and not same_bits(finding.sealed[source], value)
    ]
    if overwritten:
        message = f"the backward changes the grad_output of {names(overwritten)} in place: write into a new tensor"
        return diagnose("grad_output_modified", message)
    if case.clone_inputs:
        return None
    changed = [
        labels[source]
        for source, value in held.items()
        if source in finding.sealed and not same_bits(finding.sealed[source], value)
    ]
    if not changed:
        return None
    return diagnose(
        "saved_tensor_mutated",
        f"forward or backward changes {names(changed)} in place without autograd knowing: write into a new tensor",
    )


def ignores_needs_input_grad(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """With some operands frozen, the others' gradients stay right."""
    case = cases.first
    present = [name for name, expected in case.gradients.items() if expected is not None]
    inputs = tuple(name for name in present if name.startswith("input["))
    parameters = tuple(name for name in present if not name.startswith("input["))
    subsets = [subset for subset in (inputs, parameters) if subset and len(subset) < len(present)]
    subsets += [(name,) for name in present if len(present) > 1 and (name,) not in subsets]
    for frozen in subsets[:MAX_FROZEN_SUBSETS]:
        shown = names([case.operand_names[name] for name in frozen])
        finding = candidate.attempt(ask(candidate, case, frozen=frozen), "backward", f"backward with {shown} frozen")
        if finding.failure is not None:
            return diagnose(
                "ignores_needs_input_grad",
                f"with {shown} frozen, {first_line(finding.failure)} is raised: check ctx.needs_input_grad",
            )
        operand = first_wrong(candidate, case, finding, skip=frozen)
        if operand is not None:
            return diagnose(
                "ignores_needs_input_grad",
                f"with {shown} frozen, the gradient of `{operand}` is wrong: check ctx.needs_input_grad",
            )
    return None


def accumulation_broken(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Equal calls give equal gradients, and two backwards into the same .grad add up."""
    case = cases.first
    carried = _carried_over(candidate, case)
    if carried is not None or not _plain_is_right(candidate, case):
        return carried
    return _not_added(candidate, case) or _overwritten(candidate, case)


def _carried_over(candidate: Candidate, case: Case) -> Diagnosis | None:
    """A buffer that is added to and never zeroed hands a call what the one before left, even for a zero grad_output."""
    if not case.values_comparable:
        return None
    zero = {name: torch.zeros_like(value) for name, value in case.cotangents.items()}
    products = []
    for cotangents in (case.cotangents, case.cotangents, zero):
        finding = candidate.attempt(ask(candidate, case, cotangents=cotangents), "backward", "repeating the backward")
        if finding.failure is not None:
            return None
        products.append(product(candidate, case, finding).gradients)
    for name in case.wrt:
        first, second, left = (gradients[name] for gradients in products)
        if first is None or second is None or left is None:
            continue
        size = float(torch.linalg.vector_norm(first.double()))
        change = float(torch.linalg.vector_norm(second.double() - first.double()))
        if change > CARRIED_SHARE * size and bool(left.any()):
            share = change / max(size, 1e-300)
            return diagnose(
                "accumulation_broken",
                f"gradient of `{case.operand_names[name]}` changes by {share:.2g} of its size when "
                "the same backward is repeated, and is not zero for a grad_output of zeros: zero the buffer that "
                "backward adds to, or return a fresh tensor from each backward",
            )
    return None


def _overwritten(candidate: Candidate, case: Case) -> Diagnosis | None:
    """What one backward returned is still right after the next: the two do not share a buffer."""
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=True)
    wrt = tuple(candidate.operands(case).values())
    halves = {name: -0.5 * value for name, value in case.cotangents.items()}
    for tape in ("a", "b"):
        add_forward(script, case, "a", tape=tape)
    for tape, cotangents in (("a", case.cotangents), ("b", halves)):
        script.step(p.Backward(tape=tape, grads=tape, cotangents=script.cotangents(cotangents), wrt=wrt))
    export_gradients(script, candidate, case, "a", case.wrt)
    finding = candidate.attempt(script, "backward", "keeping one backward's gradients during the next")
    operand = None if finding.failure is not None else first_wrong(candidate, case, finding)
    if operand is None:
        return None
    return diagnose(
        "accumulation_broken",
        f"the next backward overwrites the gradient of `{operand}` that the one before returned: "
        "return a fresh tensor from each backward, not a buffer that is kept",
    )


def _not_added(candidate: Candidate, case: Case) -> Diagnosis | None:
    """The second backward gets -1/2 of the first's grad_output and leaves half; a third, through its graph, adds 1."""
    script = candidate.script(case)
    script.put_inputs("a", case.inputs, requires_grad=True)
    operands = candidate.operands(case)
    halves = {name: -0.5 * value for name, value in case.cotangents.items()}

    def backward(cotangents: Mapping[str, torch.Tensor], into: Literal["fresh", "add"], retain: bool = False) -> None:
        given, wrt = script.cotangents(cotangents), tuple(operands.values())
        script.step(p.Backward(tape="a", grads="sum", cotangents=given, wrt=wrt, into=into, retain_graph=retain))

    add_forward(script, case, "a")
    backward(case.cotangents, "fresh")
    add_forward(script, case, "a")
    backward(halves, "add", retain=True)
    export_gradients(script, candidate, case, "sum", case.wrt)
    finding = candidate.attempt(script, "backward", "two backwards into the same .grad")
    if finding.failure is not None:
        return diagnose("accumulation_broken", f"a second backward raises {first_line(finding.failure)}")
    operand = first_wrong(candidate, case, finding, key="sum", factor=2.0)
    if operand is not None:
        return diagnose(
            "accumulation_broken",
            f"two backwards into the same .grad do not add up for `{operand}`: "
            "return a fresh tensor from each backward, not a buffer that is kept",
        )
    backward(case.cotangents, "add")
    export_gradients(script, candidate, case, "sum", case.wrt)
    finding = candidate.attempt(script, "backward", "a second backward through a retained graph")
    if finding.failure is not None:
        return diagnose(
            "accumulation_broken",
            f"a second backward through a retained graph raises {first_line(finding.failure)}: keep what it needs "
            "with ctx.save_for_backward, and drop nothing in backward",
        )
    operand = first_wrong(candidate, case, finding, key="sum", factor=2 / 3)
    if operand is None:
        return None
    return diagnose(
        "accumulation_broken",
        f"a second backward through a retained graph gives another gradient of `{operand}`: "
        "do not write into what forward saved",
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
        if expected is not None and operand in total and numerics.check(expected, total[operand]).status == "failed":
            return diagnose(
                "undefined_grad_output",
                f"the gradient of `{case.operand_names[operand]}` is wrong when only one of the outputs is used: "
                "the others' grad_output is zero or None then",
            )
    return None


def wrong_stream(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """On a busy stream of its own, work that goes to another stream reads its inputs too early."""
    if candidate.device is not Device.CUDA:
        return None
    finding = candidate.attempt(ask(candidate, cases.first, side_stream=True), "backward", "running on a side stream")
    operand = None if finding.failure is not None else first_wrong(candidate, cases.first, finding)
    if finding.failure is None and operand is None:
        return None
    what = f"`{operand}` is wrong" if operand else f"{first_line(finding.failure)} is raised"  # type: ignore[arg-type]
    return diagnose(
        "wrong_stream",
        f"on a stream other than the default, {what}: launch on at::cuda::getCurrentCUDAStream()",
        severity="warning",
    )


def nondeterministic_grad(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Repeats of one backward agree in every bit."""
    first: dict[str, torch.Tensor | None] = {}
    for turn in range(REPEATS):
        finding = candidate.attempt(ask(candidate, cases.first), "backward", "repeating the backward")
        if finding.failure is not None:
            return None
        gradients = dict(product(candidate, cases.first, finding).gradients)
        first = first or gradients
        for name, gradient in gradients.items():
            before = first[name]
            if gradient is not None and before is not None and not same_bits(gradient, before):
                distance = float((gradient - before).abs().max())
                return diagnose(
                    "nondeterministic_grad",
                    f"gradient of `{cases.first.operand_names[name]}` differs by up to {distance:.2g} between repeats "
                    f"(run {turn + 1} of {REPEATS}): reduce in a fixed order instead of atomicAdd",
                    severity="warning",
                )
    return None


def inconsistent_with_forward(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Where the reference draws random numbers, the gradients are those of the submission's own forward."""
    return None if cases.first.values_comparable else differences(candidate, cases.first)


def double_backward_unsupported(candidate: Candidate, cases: Cases) -> Diagnosis | None:
    """Whether the gradients themselves carry a graph."""
    finding = candidate.attempt(ask(candidate, cases.first, double=True), "backward", "differentiating twice")
    supported = finding.failure is None and finding.of(p.Gradients)[0].double_backward
    if supported:
        return None
    return diagnose(
        "double_backward_unsupported",
        "the gradients cannot be differentiated again (information only)",
        severity="info",
    )


CAUSES: tuple[Experiment, ...] = (
    saved_tensor_mutated,
    accumulation_broken,
    ignores_grad_output,
    assumes_contiguous_grad_output,
    nondeterministic_grad,
)
"""Asked when the plain product is already wrong: what may be behind it."""

LASTING = ("saved_tensor_mutated", "grad_output_modified", "accumulation_broken")
"""Faults that leave something behind, so that the experiments after them would see it and mean something else."""

TRAPS: tuple[Experiment, ...] = (
    saved_tensor_mutated,
    accumulation_broken,
    ignores_grad_output,
    assumes_contiguous_grad_output,
    stale_saved_state,
    ignores_needs_input_grad,
    undefined_grad_output,
    inconsistent_with_forward,
    wrong_stream,
    nondeterministic_grad,
    double_backward_unsupported,
)
"""Asked when the plain product is right."""


def first_wrong(
    candidate: Candidate,
    case: Case,
    finding: Finding,
    *,
    key: str = "a",
    skip: tuple[str, ...] = (),
    factor: float = 1.0,
) -> str | None:
    """Display name of the first operand whose gradient, times `factor`, is not the reference's."""
    found = product(candidate, case, finding, key)
    for name, expected in case.gradients.items():
        if name in skip or expected is None:
            continue
        gradient = found.gradients[name]
        if gradient is None:
            if bool(expected.golden.any()):
                return case.operand_names[name]
        elif case.values_comparable and numerics.check(expected, gradient * factor).status == "failed":
            return case.operand_names[name]
    return None


def _plain_is_right(candidate: Candidate, case: Case) -> bool:
    finding = candidate.attempt(ask(candidate, case), "backward", "backward with a contiguous grad_output")
    return finding.failure is None and first_wrong(candidate, case, finding) is None


def _backward(script: Script, candidate: Candidate, case: Case, key: str) -> None:
    operands = candidate.operands(case)
    cotangents = script.cotangents(case.cotangents)
    script.step(p.Backward(tape=key, grads=key, cotangents=cotangents, wrt=tuple(operands.values())))
    export_gradients(script, candidate, case, key, case.wrt)


def _spec(value: torch.Tensor) -> TensorSpec:
    return TensorSpec(tuple(value.shape), value.dtype)


def _article(layout: str) -> str:
    return f"an {layout}" if layout.startswith("e") else f"a {layout}"
