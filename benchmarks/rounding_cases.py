"""Results for `rounding_rule`: draws of problems, right results of them and wrong ones, all made in this process."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fuzz.mutants.effect import load
from fuzz.mutants.exercise import as_tuple, leaf, named_leaves, trained
from grader.grading.compare import nonsmooth
from grader.grading.oracle.evaluation import MODEL, Evaluation, Pass
from grader.grading.oracle.perturbed_runs import PERTURBED_RUNS, perturbed_runs
from grader.grading.oracle.trackers import Trackers, reduction_lengths
from grader.grading.oracle.values import perturbed, perturbed_state
from grader.machine.backends import backend
from grader.verdict.models import Device
from grader.worker.checks.work_count import Counter as WorkCounter

ROOT = Path(__file__).parents[1]
WINOGRAD_ULPS = 16.0
"""Noise on inputs and parameters that moves results about as much as a Winograd convolution, in units of EPSILON."""
NOISE, FACTOR, STEP = 3e-4, 1 + 2e-5, 0.3
"""Wrong results: relative noise in all elements, a factor on them, and a step of one, relative to the tensor's RMS."""


@dataclass
class Draw:
    """Inputs, parameters and grad_outputs of one draw, and what the reference's runs say about them."""

    problem: Any
    device: Device
    seed: int

    def __post_init__(self) -> None:
        torch.manual_seed(self.seed)
        where = backend(self.device).torch_device
        self.arguments = self.problem.get_init_inputs() if hasattr(self.problem, "get_init_inputs") else []
        model = self.problem.Model(*self.arguments)
        trained(model, self.seed)
        self.state = {name: value.detach().to(where) for name, value in model.state_dict().items()}
        self.inputs = [value.to(where) for value in self.problem.get_inputs()]
        self.cotangents: list[torch.Tensor] = []
        self.reference = partial(self.problem.Model, *self.arguments)
        with WorkCounter([]) as counter:
            outputs = as_tuple(self._model(self.reference, self.state, torch.float32)(*self.inputs))
        work = counter.work([])
        self.cotangents = [torch.randn_like(one) if one.is_floating_point() else one for one in outputs]
        self.has_products = work.matmul + work.convolution > 0
        self.eager = self.run(self.reference)
        counted: Any = SimpleNamespace(flops=work.matmul + work.convolution, scanned=work.scanned)
        lengths = reduction_lengths(counted, self.inputs, self.eager)
        self.exact = self.run(self.reference, dtype=torch.float64)
        self._runs: dict[float, list[Evaluation]] = defaultdict(list)
        trackers = Trackers(self.eager, self.exact, has_float64=True, again=self._again, inputs=self.inputs)
        for run in self._again(range(PERTURBED_RUNS), nonsmooth.PERTURBATION_ULPS):
            trackers.add(run)
        self.expected = {
            **trackers.expected("outputs", lengths["outputs"]),
            **trackers.expected("gradients", lengths["gradients"]),
            **trackers.expected("buffers", lengths["buffers"]),
        }

    def run(
        self,
        make: Callable[[], torch.nn.Module],
        *,
        inputs: list[Any] | None = None,
        state: dict[str, torch.Tensor] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Evaluation:
        """The outputs, gradients and buffers of one forward and backward."""
        model = self._model(make, state or self.state, dtype)
        given = leaf([one.to(dtype) if one.is_floating_point() else one for one in inputs or self.inputs])
        leaves = named_leaves(model, given)
        torch.manual_seed(self.seed)
        outputs = as_tuple(model(*given))
        pairs = [(one, grad.to(dtype)) for one, grad in zip(outputs, self.cotangents, strict=True) if one.requires_grad]
        grads = torch.autograd.grad(
            [one for one, _ in pairs], list(leaves.values()), [grad for _, grad in pairs], allow_unused=True
        )
        return Evaluation(
            {f"output[{index}]": one.detach() for index, one in enumerate(outputs)},
            dict(zip(leaves, grads, strict=True)),
            {name: value.clone() for name, value in model.named_buffers()},
        )

    def spread(self, name: str, runs: int, ulps: float) -> torch.Tensor:
        """The largest error of so many perturbed runs and the plain one, for each element."""
        self._runs[ulps] += self._again(range(len(self._runs[ulps]), runs), ulps)
        exact = tensor(self.exact, name)
        together = (self.eager, *self._runs[ulps][:runs])
        errors = [nonsmooth.absolute_error(tensor(run, name), exact) for run in together]
        return torch.stack(errors).amax(0)

    def _again(self, turns: range, ulps: float) -> Iterator[Evaluation]:
        return perturbed_runs(self._ask, Pass(MODEL, self.inputs, self.state), turns, ulps)

    def _ask(self, passes: Iterable[Pass], *, streamed: bool = False) -> Iterator[Evaluation]:
        yield from (self.run(self.reference, inputs=list(one.inputs), state=dict(one.state)) for one in passes)

    def _model(
        self, make: Callable[[], torch.nn.Module], state: dict[str, torch.Tensor], dtype: torch.dtype
    ) -> torch.nn.Module:
        torch.manual_seed(self.seed)
        model = make().to(backend(self.device).torch_device, dtype)
        model.load_state_dict(state)
        return model


def right(draw: Draw, submission: Any = None) -> dict[str, Evaluation]:
    """Right results by name."""
    found = {} if submission is None else {"submission": draw.run(partial(submission.ModelNew, *draw.arguments))}
    with _without_library(draw.device):
        found["reference by other kernels"] = draw.run(draw.reference)
    inputs = perturbed(draw.inputs, WINOGRAD_ULPS)
    state = perturbed_state(draw.state, WINOGRAD_ULPS)
    return {**found, "reference rounded as by Winograd": draw.run(draw.reference, inputs=inputs, state=state)}


def wrong(draw: Draw) -> Iterator[tuple[str, Evaluation]]:
    """(what, run): results with an error in one floating-point tensor, and those of TensorFloat-32."""
    names = [name for name, expected in draw.expected.items() if expected.dtype.is_floating_point and expected.norm]
    if names:
        torch.manual_seed(draw.seed)
        name = names[draw.seed % len(names)]
        value = tensor(draw.eager, name).contiguous()
        yield f"noise of {NOISE:g}", _with(draw.eager, name, value * (1 + NOISE * torch.randn_like(value)))
        yield f"a factor of {FACTOR:g}", _with(draw.eager, name, value * FACTOR)
        one = value.clone()
        one.view(-1)[int(torch.randint(one.numel(), ()))] += STEP * draw.expected[name].norm / one.numel() ** 0.5
        yield f"one element off by {STEP:g} rms", _with(draw.eager, name, one)
    if draw.has_products:
        rounded = {key: in_tf32(value) for key, value in draw.state.items()}
        yield "TensorFloat-32", draw.run(draw.reference, inputs=list(map(in_tf32, draw.inputs)), state=rounded)


def _with(run: Evaluation, name: str, value: torch.Tensor) -> Evaluation:
    """The run with another tensor of this name."""
    tables = (run.outputs, run.gradients, run.buffers)
    return Evaluation(*({**table, name: value} if table.get(name) is not None else table for table in tables))


def in_tf32(value: Any) -> Any:
    """A float32 tensor rounded to TensorFloat-32's ten bits of significand; anything else unchanged."""
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    return ((value.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def other_problems() -> Iterator[tuple[str, Any]]:
    """(name, definitions) of the shipped problems and of those of the cases that this script can run."""
    for path in sorted([*ROOT.glob("problems/*.py"), *ROOT.glob("tests/cases/problems/*.py")]):
        try:
            problem = load(path.read_text())
            variants = problem.get_variants() if hasattr(problem, "get_variants") else {}
            for name, (make_init_inputs, make_inputs) in variants.items():
                if name in ("small", "odd"):
                    variant = SimpleNamespace(
                        Model=problem.Model, get_init_inputs=make_init_inputs, get_inputs=make_inputs
                    )
                    yield f"{path.stem} {name}", _usable(variant)
            if not variants:
                yield path.stem, _usable(problem)
        except Exception as error:  # no float64, no gradients, outputs that are no tensors
            print(f"{path.stem} is left out: {type(error).__name__}: {error}"[:100], flush=True)


def _usable(problem: Any) -> Any:
    """The problem. Raises an exception for one that is random, large, or cannot be run here."""
    draw = Draw(problem, Device.CPU, 0)
    draw.seed = 1
    again = draw.run(draw.reference)
    if any(not torch.equal(value, again.outputs[name]) for name, value in draw.eager.outputs.items()):
        raise ValueError("random")
    if sum(value.numel() for value in draw.inputs) > 1 << 16:
        raise ValueError("large")
    return problem


def tensor(run: Evaluation, name: str) -> Any:
    """A tensor of a run by name; None if it has none of that name."""
    return next((table[name] for table in run if table.get(name) is not None), None)


def _without_library(device: Device) -> Any:
    """A context without oneDNN or cuDNN, where sums have another order."""
    if device is Device.CUDA:
        return torch.backends.cudnn.flags(enabled=False, allow_tf32=False)
    return torch.backends.mkldnn.flags(enabled=False)
