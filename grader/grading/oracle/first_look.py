"""Finds the properties of a variant that the reference has not run yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.executor import JobBuilder, TensorSpec
from grader.grading.compare.blocks import is_large, same_bits
from grader.grading.messages import first_line
from grader.grading.oracle.evaluation import MODEL, MODEL64, Pass, evaluate_each, widened
from grader.grading.oracle.reference_process import ReferenceProcess
from grader.grading.oracle.trained_state import ascends, first_training, zeros_or_ones
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import as_real, is_differentiable

SEEDS = 40
"""Seeds that are tried. A branch that one run in ten drops is noticed with probability 98.5%, 1 - 0.9^40."""
FEWEST_SEEDS = 10
"""Seeds that are tried however long a run takes: of three branches like that, one is noticed with probability 94%."""
PLAIN = ("bool", "int", "float", "str")
"""Types of returned values that hold no tensors."""


class _Forwards(NamedTuple):
    """One forward in float32, in float64 and with its operations counted."""

    outputs: tuple[p.TensorInfo, ...]
    """Descriptions of the float32 outputs."""
    clone_inputs: bool
    """The reference works in place on its input."""
    has_float64: bool
    counted: p.Counted | None
    """None if operations cannot be counted."""


def first_look(
    reference: ReferenceProcess,
    parameters: tuple[p.TensorInfo, ...],
    buffers: tuple[p.TensorInfo, ...],
    inputs: Sequence[object],
    training: bool,
    anew: p.Construct,
    constructed: dict[str, torch.Tensor] | None = None,
) -> tuple[Traits, dict[str, torch.Tensor]]:
    """(traits of the models in the worker, the float32 model's state as its constructor left it).

    `anew` constructs another float32 model; `constructed` is that state, if other runs have changed it since. Raises
    ReferenceRefused if the reference fails or cannot serve as one.
    """
    sparse = next((info.name for info in (*parameters, *buffers) if info.is_sparse), None)
    if sparse is not None:
        what = f"`{sparse}` of the reference is a sparse tensor; register its indices and values as dense buffers"
        raise ReferenceRefused(f"{reference.problem.path}: {what}")
    names = {info.name: TensorSpec.of(info) for info in (*parameters, *buffers)}
    exports = {p.state_source(MODEL, name): spec for name, spec in names.items()}
    fixed = (*buffers, *(info for info in parameters if not info.requires_grad))
    exports |= {p.state_source(MODEL64, info.name): widened(names[info.name], True) for info in fixed}
    forwards, sealed = _forwards(reference, inputs, training, exports)
    state = constructed or {name: sealed[p.state_source(MODEL, name)] for name in names}
    seeded = {info.name: sealed[p.state_source(MODEL64, info.name)].to(state[info.name].dtype) for info in fixed}
    constructed_traits = _as_constructed(forwards, parameters, buffers, state, seeded, training)

    def passes(trained: Mapping[str, torch.Tensor]) -> list[Pass]:
        plain = Pass(MODEL, inputs, trained, training=training)
        return [plain, replace(plain, seed=1, before=(anew,))]

    def outputs_from(trained: Mapping[str, torch.Tensor]) -> list[Mapping[str, torch.Tensor]]:
        return [run.outputs for run in evaluate_each(reference, constructed_traits, passes(trained))]

    traits, trained, (first, other) = first_training(state, constructed_traits, outputs_from)
    draws = forwards.counted is None or forwards.counted.draws
    plain = passes(trained)[0]
    stochastic = _stochastic(reference, traits, plain, first, other, draws, anew)
    return traits._replace(stochastic=stochastic), state


def _as_constructed(
    forwards: _Forwards,
    parameters: tuple[p.TensorInfo, ...],
    buffers: tuple[p.TensorInfo, ...],
    state: Mapping[str, torch.Tensor],
    seeded: Mapping[str, torch.Tensor],
    training: bool,
) -> Traits:
    """The traits of a model as its constructor leaves it, which is not known to be random yet.

    `seeded` holds the buffers and frozen parameters of a model constructed under another seed: a table's are the same.
    """
    counted = forwards.counted
    work = counted.forward if counted else p.Work()
    asserts, apart, bounds = (counted.asserts, counted.apart, counted.bounds) if counted else (True, (), ())
    written = tuple(info for info in parameters if counted and info.name in counted.written)
    return Traits(
        outputs=forwards.outputs,
        parameters=parameters,
        buffers=(*buffers, *written),
        clone_inputs=forwards.clone_inputs,
        stochastic=False,
        has_float64=forwards.has_float64,
        flops=work.matmul + work.convolution,
        convolves=work.convolution > 0,
        scanned=work.scanned,
        tables=frozenset(
            name for name, other in seeded.items() if not zeros_or_ones(state[name]) and alike(state[name], other)
        ),
        asserts=asserts,
        apart=apart,
        bounds=frozenset(bounds),
        ascending=frozenset(name for name in bounds if ascends(state[name])),
        integers={
            name: other
            for name, other in seeded.items()
            if not (is_differentiable(other) or is_large(other) or alike(state[name], other))
        },
        training=training,
    )


def at_another_size(reference: ReferenceProcess, traits: Traits, inputs: Sequence[object], training: bool) -> Traits:
    """The traits of the variant with fewer rows, with the outputs and the work of the full size."""
    forwards, _ = _forwards(reference, inputs, training)
    work = forwards.counted.forward if forwards.counted else p.Work()
    return traits._replace(outputs=forwards.outputs, flops=work.matmul + work.convolution, scanned=work.scanned)


def _stochastic(
    reference: ReferenceProcess,
    traits: Traits,
    plain: Pass,
    first: Mapping[str, torch.Tensor],
    other: Mapping[str, torch.Tensor],
    draws: bool,
    anew: p.Construct,
) -> bool:
    """Whether forwards under other seeds differ. Raises ReferenceRefused for a difference that no seed makes.

    That is one between two models of the same state, or between a model's calls where new models agree.

    `first` are the outputs under seed 0, `other` those of a model constructed anew under seed 1. A difference in any
    bit counts, because a small random branch may change a gradient as much as a large one; `randomness` then compares
    gradients too. If bits differ between calls under one seed as well, the outputs must differ by more than rounding,
    or the model must call a random function (`draws`).
    """
    if same(first, other):
        seeds = range(2, SEEDS) if draws else ()
        others = evaluate_each(reference, traits, (replace(plain, seed=seed) for seed in seeds))
        differing = next((run.outputs for run in others if not same(first, run.outputs)), None)
        if differing is None:
            return False
        other = differing
    again = next(evaluate_each(reference, traits, [plain])).outputs
    of_rounding = outputs_alike(first, other)
    if same(first, again) and (draws or of_rounding):
        return True
    if of_rounding:
        return draws
    if outputs_alike(other, again):
        raise ReferenceRefused(
            f"{reference.problem.path}: two models with the same parameters and buffers give different outputs; "
            "register everything else that the constructor draws as a buffer"
        )
    one, another = evaluate_each(reference, traits, [replace(plain, before=(anew,))] * 2)
    if outputs_alike(one.outputs, another.outputs):
        raise ReferenceRefused(
            f"{reference.problem.path}: in {_mode(traits.training)}, the outputs change from call to call, with the "
            "same inputs, parameters, buffers and seed, and two new models agree: the reference keeps state between "
            "calls that is not in a buffer, such as a counter; register it as a buffer"
        )
    return True


def _forwards(
    reference: ReferenceProcess,
    inputs: Sequence[object],
    training: bool,
    exports: Mapping[str, TensorSpec] | None = None,
) -> tuple[_Forwards, Mapping[str, torch.Tensor]]:
    """Run the models in one job, and in float64 too if their state is exported before.

    The job ends at the first step that fails. Raises ReferenceRefused if float32 fails.
    """
    sealed: Mapping[str, torch.Tensor] = {}
    for clone_inputs in (False, True):
        job = JobBuilder(reference.worker, reference.device)
        if exports is not None and not sealed:
            job.export(exports, convert=True)
            if job.deferred:  # a forward may change buffers before they are read
                sealed = dict(reference.run(job).sealed)
                job = JobBuilder(reference.worker, reference.device)
        run: dict[str, Any] = {"inputs": "a", "training": training, "clone_inputs": clone_inputs}
        job.put_inputs("a", inputs, requires_grad=True)
        job.step(p.Forward(model=MODEL, tape="a", grad=True, **run))
        job.step(p.Drop())
        if exports is not None:
            job.put_inputs("a", inputs, float64=True)
            job.step(p.Forward(model=MODEL64, tape="a", **run))
            job.step(p.Drop())
        _add_count(job, inputs, run)
        result = reference.run(job, tolerate_failure=True)
        sealed = sealed or result.sealed
        forwards = result.of(p.Outputs)
        if forwards:
            outputs = forwards[0].tensors
            _reject_unknown(reference, outputs)
            has_float64 = len(forwards) > 1
            if exports is not None and not has_float64:  # the job ended there
                job = JobBuilder(reference.worker, reference.device)
                _add_count(job, inputs, run)
                result = reference.run(job, tolerate_failure=True)
            counted = next(iter(result.of(p.Counted)), None)
            return _Forwards(outputs, clone_inputs, has_float64, counted), sealed
        assert result.failure is not None
        if "leaf Variable" not in result.failure.text:
            break
    assert result.failure is not None
    raise ReferenceRefused(
        f"{reference.problem.path}: in {_mode(training)}, the reference raised {first_line(result.failure)}"
    )


def _mode(training: bool) -> str:
    return "train()" if training else "eval()"


def _add_count(job: JobBuilder, inputs: Sequence[object], run: Mapping[str, Any]) -> None:
    job.put_inputs("a", inputs)
    job.step(p.Count(model=MODEL, **run))
    job.step(p.Drop())


def _reject_unknown(reference: ReferenceProcess, outputs: Sequence[p.TensorInfo]) -> None:
    """Raise ReferenceRefused for a returned value that may hold tensors which would not be compared."""
    unknown = next((info for info in outputs if info.kind == "other" and info.type_name not in PLAIN), None)
    if unknown is not None:
        raise ReferenceRefused(
            f"{reference.problem.path}: the reference returns a {unknown.type_name} as {unknown.name}; return tensors, "
            "or tuples, lists and dictionaries of them, with None, numbers and strings among them at most"
        )


def same(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether the tensors agree in every bit."""
    return all(same_bits(one[name], other[name]) for name in one)


def outputs_alike(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    """Whether all tensors of the same name are `alike`."""
    return all(alike(one[name], other[name]) for name in one)


def alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors differ by no more than two runs of one model on one device."""
    a, b = as_real(a), as_real(b)
    if not a.is_floating_point() or a.itemsize == 1:
        return same_bits(a, b)
    return torch.allclose(
        a, b, rtol=1e-3, atol=1e-3 * float(a.abs().nan_to_num(0, 0, 0).amax()) if a.numel() else 0.0, equal_nan=True
    )


def absent(gradient: torch.Tensor | None) -> bool:
    """Whether there is no gradient, or one of zeros."""
    return gradient is None or not bool(gradient.any())
