"""The reference's answers on variations of a case: other inputs, parameters and grad_outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.executor import TensorSpec
from grader.grading.compare import tolerance
from grader.grading.compare.expected import Expected
from grader.grading.oracle.capabilities import add_graph, script
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL, MODEL64, Pass
from grader.grading.oracle.input_structure import Structure
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.perturbed_runs import perturbed_runs
from grader.grading.oracle.remembered import derived, remembered
from grader.grading.oracle.trackers import Trackers
from grader.grading.oracle.values import OTHER_DRAWS, is_differentiable, is_float


@derived
def edited(oracle: Oracle, case: Case) -> Case:
    """The case with a few elements of each input but integers replaced, and the outputs for these inputs."""
    input_structures = structures(oracle, case)
    inputs = (
        input_structures[i].edited(value) if is_differentiable(value) else value for i, value in enumerate(case.inputs)
    )
    other = replace(case, inputs=tuple(inputs))
    try:
        return replace(other, outputs=outputs_of(oracle, other))
    except ProblemError:  # for example, a matrix that is no longer positive definite
        return case


@remembered
def structures(oracle: Oracle, case: Case) -> dict[int, Structure]:
    """The structure of each tensor argument of the forward but floats of eight bits, by position."""
    apart = oracle.traits(case).apart
    return {
        index: Structure([value for value in values if isinstance(value, torch.Tensor)], apart)
        for index, values in enumerate(zip(case.inputs, *_other_draws(oracle, case), strict=True))
        if isinstance(values[0], torch.Tensor) and (is_float(values[0]) or not values[0].is_floating_point())
    }


def _other_draws(oracle: Oracle, case: Case) -> list[list[object]]:
    """OTHER_DRAWS further draws of the case's inputs."""
    return [oracle.models.draw(case.variant)[1] for _ in range(OTHER_DRAWS)]


@derived
def without_gradients(oracle: Oracle, case: Case) -> Case:
    """The same case with its buffers after a forward under no_grad, which may update them in another way."""
    after = buffers_for(oracle, case)
    return replace(
        case, buffers={name: buffer.around(after[name].reference64) for name, buffer in case.buffers.items()}
    )


def buffers_for(oracle: Oracle, case: Case) -> dict[str, Expected]:
    """The expected buffers after a forward under no_grad of a case with other parameters or buffers."""
    (trackers,) = _forwards(oracle, [case])
    return trackers.expected("buffers", lambda _: 1.0)


def outputs_of(oracle: Oracle, other: Case) -> dict[str, Expected]:
    """The expected outputs of a variation of a case, with at least its baseline error.

    A variation has other values of the same sizes, and still the `outputs` of the case. Raises ProblemError.
    """
    return outputs_of_each(oracle, [other])[0]


def outputs_of_each(oracle: Oracle, cases: Sequence[Case]) -> list[dict[str, Expected]]:
    """`outputs_of` each of several variations of one case."""
    return [with_case_errors(cases[0], trackers) for trackers in _forwards(oracle, cases)]


def _forwards(oracle: Oracle, cases: Sequence[Case]) -> Iterator[Trackers]:
    """Forwards of variations of one case: float64 values and the baseline error for each."""
    return compared(oracle, cases[0], [Pass.of(case, backward=False) for case in cases])


def compared(oracle: Oracle, case: Case, passes: Sequence[Pass]) -> Iterator[Trackers]:
    """Passes of the case's model, each in float32 and, where they matter, in float64 and TensorFloat-32."""
    exactly, ask = oracle.runs_float64(case), partial(oracle.ask, case)
    rounds = exactly and oracle.precision.meaning.tf32 and oracle.traits(case).flops > 0

    def runs_of(one: Pass) -> Iterator[Pass]:
        yield one
        if exactly:
            yield replace(one, model=MODEL64)
        if rounds:
            yield from (one.in_tf32(), one.in_tf32(cut=True))

    results = ask(run for one in passes for run in runs_of(one))
    for one in passes:
        eager = next(results)
        exact = next(results) if exactly else None
        again = partial(perturbed_runs, ask, one.in_tf32() if rounds else one) if exact else None
        tied, asserts = one.inputs if one.wrt else (), oracle.traits(case).asserts
        trackers = Trackers(eager, exact, has_float64=exactly, again=again, inputs=tied, asserts=asserts)
        trackers.rounds_operands = rounds
        if rounds:
            trackers.add_in_tf32(results)
        yield trackers


def with_case_errors(case: Case, trackers: Trackers) -> dict[str, Expected]:
    """The outputs with the case's reduction length and strictness, and with its baseline error at least."""
    outputs = {}
    for name, own in trackers.expected("outputs", lambda _: 1.0).items():
        usual = case.outputs[name]
        outputs[name] = replace(
            own,
            error_l2=max(usual.error_l2, own.error_l2),
            error_max=max(usual.error_max, own.error_max),
            reduction_length=usual.reduction_length,
            strict=usual.strict,
        )
    return outputs


def element_gradients(
    oracle: Oracle, case: Case, output: str, elements: Sequence[int]
) -> list[dict[int, torch.Tensor]]:
    """The gradient of each of these elements of an output, by argument; empty if it has none."""
    floats = [i for i, value in enumerate(case.inputs) if is_float(value)]
    if output not in case.cotangents or not floats:
        return [{} for _ in elements]
    job = script(oracle, case)
    add_graph(job, case)
    cotangent = case.cotangents[output]
    for turn, element in enumerate(elements):
        one = torch.zeros_like(cotangent, memory_format=torch.contiguous_format)
        one.view(-1)[element] = 1
        job.step(
            p.Backward(
                tape="a",
                grads=f"g{turn}",
                cotangents=job.cotangents({output: one}),
                wrt=tuple(f"input[{i}]" for i in floats),
                retain_graph=True,
            )
        )
        gradients = {f"input[{i}]": TensorSpec.like(case.operand(f"input[{i}]")) for i in floats}
        job.export({p.gradient_source(f"g{turn}", name): spec for name, spec in gradients.items()})
    job.step(p.Drop())
    sealed = oracle.process.run(job).sealed
    sources = [{i: p.gradient_source(f"g{turn}", f"input[{i}]") for i in floats} for turn in range(len(elements))]
    return [{i: sealed[source] for i, source in table.items() if source in sealed} for table in sources]


@remembered
def trivial_outputs(oracle: Oracle, case: Case) -> str | None:
    """Which outputs would pass without being computed, or None. Raises ProblemError."""
    model = MODEL64 if oracle.runs_float64(case) else MODEL
    passes = (Pass(model, inputs, case.state, training=case.training) for inputs in _other_draws(oracle, case))
    others = [run.outputs for run in oracle.ask(case, passes)]
    if all(_passes(case, {name: _level(value) for name, value in other.items()}) for other in others):
        values = (_level(value).flatten()[0].item() for value in others[0].values() if value.numel())
        shown = ", ".join(f"{value:.6g}" for value in values)
        return f"outputs filled with a constant pass the tolerance: {shown}"
    varies = any(not structure.fixed for structure in structures(oracle, case).values())
    if varies and all(_passes(case, other) for other in others):
        return "other inputs give the same outputs within the tolerance: stored outputs pass"
    return None


def _passes(case: Case, outputs: Mapping[str, torch.Tensor]) -> bool:
    """Whether a submission that returned these outputs would pass, wherever the reference is smooth.

    Otherwise outputs for other inputs would each ask for the runs behind the spread.
    """
    return all(
        outputs[name].shape == expected.reference64.shape
        and tolerance.passes(replace(expected, spread=None), outputs[name])
        for name, expected in case.outputs.items()
    )


def _level(value: torch.Tensor) -> torch.Tensor:
    """The tensor filled with the constant that fits best: the mean, or the most frequent integer."""
    if not value.numel():
        return value
    middle = value.mean() if value.is_floating_point() or value.is_complex() else value.flatten().mode().values
    return middle.expand(value.shape)
