"""Asks the reference worker for everything that a candidate is held against. Cases are made once and kept."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

import torch

from grader import protocol as p
from grader.errors import ProblemError
from grader.models import Device, Problem
from grader.problem_module import ProblemModule, Variant, load_problem
from grader.remote import Finding, RemoteWorker, Script, TensorSpec, WorkerLost
from grader.stages import numerics
from grader.stages.cases import Case
from grader.stages.reductions import ReductionLengths
from grader.stages.trackers import Evaluation, Trackers, is_large, parked

REFERENCE_SECONDS = 300.0
"""For one job of the reference."""
PERTURBED_RUNS = 3
PERTURBATION_ULPS = 8.0
"""Relative size of the noise on inputs and parameters, in units of float32's spacing: what a long chain of roundings
may do. Large enough that a kink which a candidate could flip is flipped by one of the runs with near certainty."""
EDITS = 3
"""Elements that an edited input differs in: too few for a checksum over a sample to notice."""
MODEL, GOLDEN = "model", "golden"
_Answer = TypeVar("_Answer")


class Traits(NamedTuple):
    """What a first look at a variant tells."""

    outputs: tuple[p.TensorInfo, ...]
    parameters: tuple[p.TensorInfo, ...]
    buffers: tuple[p.TensorInfo, ...]
    clone_inputs: bool
    stochastic: bool
    """Two runs on the same inputs and state, with other seeds, differ."""
    has_float64: bool


class _Constructed(NamedTuple):
    """The models that the worker holds now."""

    variant: str
    training: bool
    init_inputs: object
    traits: Traits
    state: dict[str, torch.Tensor]
    """As the constructor left it."""


class ReferenceDesk:
    """The reference of one problem on one device, with its worker."""

    def __init__(self, problem: Problem, device: Device, worker: RemoteWorker) -> None:
        self.problem, self.device, self.worker = problem, device, worker
        self.module: ProblemModule = load_problem(problem)
        self._cases: dict[tuple[str, bool, int, bool], Case] = {}
        self._constructed: _Constructed | None = None
        self._looked: dict[tuple[str, bool, str], tuple[Traits, dict[str, torch.Tensor]]] = {}
        self._edited: dict[int, Case] = {}
        self._answers: dict[Hashable, Any] = {}
        self._shipped: tuple[Case, bool, Mapping[str, float]] | None = None
        self._step(p.Import(source=problem.source, file_name=f"{problem.id}.py", class_name="Model"))

    def case(self, variant: str, *, training: bool = True, draw: int = 0, constant_cotangents: bool = False) -> Case:
        """The draw-th case of a variant; the same one each time it is asked for.

        Draw 0 has the parameters that the constructor makes, later draws move them as training would.
        """
        key = (variant, training, draw, constant_cotangents)
        if key not in self._cases:
            self._cases[key] = self._make(self.module.variants[variant], training, draw, constant_cotangents)
        return self._cases[key]

    def ready(self, case: Case) -> None:
        """Have the float32 model of the case's variant in the worker."""
        held = self._constructed
        if held is None or (held.variant, held.training) != (case.variant, case.training):
            variant = self.module.variants[case.variant]
            init_inputs, inputs = draw_inputs(variant, self.device, secrets.randbits(62))
            self._construct(case.variant, init_inputs, inputs, case.training)

    def run(self, script: Script, timeout_seconds: float = REFERENCE_SECONDS) -> Finding:
        """Have the reference carry out a job. Raises ProblemError where it fails."""
        return self._run(script, timeout_seconds=timeout_seconds)

    def shipped_error(self, case: Case, *, tf32: bool = True) -> Mapping[str, float]:
        """Relative error of eager PyTorch by the tensors' names; `tf32`: with its default, TensorFloat-32 in cuDNN."""
        if self._shipped is None or self._shipped[0] is not case or self._shipped[1] != tf32:
            self._shipped = (case, tf32, self._measure_shipped_error(case, tf32))
        return self._shipped[2]

    def work(self, case: Case) -> p.Counted:
        """Operations and mandatory memory of one forward and, where the case has cotangents, one backward."""
        self.ready(case)
        script = Script(self.worker, self.device)
        script.set_state(MODEL, case.state)
        script.put_inputs("a", case.inputs, requires_grad=bool(case.wrt))
        script.step(
            p.Count(
                model=MODEL,
                inputs="a",
                cotangents=script.cotangents(case.cotangents) if case.wrt else {},
                wrt=case.wrt,
                training=case.training,
                clone_inputs=case.clone_inputs,
            )
        )
        script.step(p.Drop())
        counted: p.Counted = self._run(script).of(p.Counted)[0]
        return counted

    def gauge(self) -> p.Gauged:
        """What the device can do, measured by the reference's worker."""
        self.release()
        measured = self._step(p.Gauge(device=self.device.value))
        assert isinstance(measured, p.Gauged)
        return measured

    def edited(self, case: Case) -> Case:
        """The same case with EDITS elements of each float input replaced; outputs only, by the same parameters."""
        if case.seed not in self._edited:
            inputs = [_edited(value) if is_float(value) else value for value in case.inputs]
            self.ready(case)
            assert self._constructed is not None
            traits = self._constructed.traits
            runs = [
                self._evaluate(model, traits, inputs, case.state, {}, (), case.training)
                for model in ((GOLDEN, MODEL) if traits.has_float64 else (MODEL,))
            ]
            trackers = Trackers(runs[-1], runs[0], has_float64=traits.has_float64)
            exact = trackers.expected("outputs", lambda _: 1.0)
            outputs = {name: replace(case.outputs[name], golden=of.golden) for name, of in exact.items()}
            self._edited[case.seed] = replace(case, inputs=tuple(inputs), outputs=outputs)
        return self._edited[case.seed]

    def outputs_for(self, case: Case, inputs: Sequence[object]) -> dict[str, numerics.Expected]:
        """What the same parameters make of other inputs of the same sizes; integers as the case has them."""
        self.ready(case)
        assert self._constructed is not None
        traits = self._constructed.traits
        models = (GOLDEN, MODEL) if traits.has_float64 else (MODEL,)
        runs = [self._evaluate(of, traits, inputs, case.state, {}, (), case.training).outputs for of in models]
        found = {}
        for name, of in case.outputs.items():
            if of.dtype.is_floating_point:
                l2, largest = numerics.yardstick([runs[-1][name]], runs[0][name])
                of = replace(
                    of,
                    golden=runs[0][name],
                    error_l2=max(of.error_l2, l2),
                    error_max=max(of.error_max, largest),
                )
            found[name] = of
        return found

    def element_gradients(self, case: Case, output: str, elements: Sequence[int]) -> list[dict[int, torch.Tensor]]:
        """By argument, the gradient of each of these elements of an output; empty where it has none."""
        floats = [i for i, value in enumerate(case.inputs) if is_float(value)]
        if output not in case.cotangents or not floats:
            return [{} for _ in elements]
        self.ready(case)
        script = Script(self.worker, self.device)
        script.set_state(MODEL, case.state)
        script.put_inputs("a", case.inputs, requires_grad=True)
        script.step(
            p.Forward(
                model=MODEL, inputs="a", tape="a", training=case.training, grad=True, clone_inputs=case.clone_inputs
            )
        )
        cotangent = case.cotangents[output]
        for turn, element in enumerate(elements):
            one = torch.zeros_like(cotangent, memory_format=torch.contiguous_format)
            one.view(-1)[element] = 1
            script.step(
                p.Backward(
                    tape="a",
                    grads=f"g{turn}",
                    cotangents=script.cotangents({output: one}),
                    wrt=tuple(f"input[{i}]" for i in floats),
                    retain_graph=True,
                )
            )
            specs = {i: TensorSpec(tuple(case.operand(f"input[{i}]").shape), torch.float32) for i in floats}
            script.export({f"grad:g{turn}:input[{i}]": spec for i, spec in specs.items()})
        script.step(p.Drop())
        sealed = self._run(script).sealed
        sources = [{i: f"grad:g{turn}:input[{i}]" for i in floats} for turn in range(len(elements))]
        return [{i: sealed[source] for i, source in of.items() if source in sealed} for of in sources]

    def redrawn(self, case: Case) -> dict[str, torch.Tensor]:
        """The outputs for other inputs by the case's parameters, in float64 where the reference runs in it."""
        _, inputs = draw_inputs(self.module.variants[case.variant], self.device, secrets.randbits(62))
        self.ready(case)
        assert self._constructed is not None
        traits = self._constructed.traits
        model = GOLDEN if traits.has_float64 else MODEL
        return dict(self._evaluate(model, traits, inputs, case.state, {}, (), case.training).outputs)

    def takes_strided(self, case: Case) -> bool:
        """The reference gives the same outputs for inputs that are not contiguous."""

        def ask() -> bool:
            self.ready(case)
            script = Script(self.worker, self.device)
            script.set_state(MODEL, case.state)
            script.put_inputs("a", case.inputs, layout="strided")
            script.step(p.Forward(model=MODEL, inputs="a", tape="a", training=case.training))
            script.export({f"output:a:{name}": TensorSpec(of.shape, of.dtype) for name, of in case.outputs.items()})
            script.step(p.Drop())
            finding = self._run(script, tolerate_failure=True)
            return finding.failure is None and all(
                numerics.check(of, finding.sealed[f"output:a:{name}"]).status == "passed"
                for name, of in case.outputs.items()
            )

        return self.remember(("strided", case.seed), ask)

    def remember(self, key: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """What the reference answers to a question that each submission raises, asked once."""
        if key not in self._answers:
            self._answers[key] = ask()
        answer: _Answer = self._answers[key]
        return answer

    def substituted(self, case: Case, substitute: Literal["gelu_tanh", "gelu_erf"]) -> dict[str, numerics.Expected]:
        """The float64 outputs with a function replaced by its lookalike; empty where that changes nothing."""
        self.ready(case)
        assert self._constructed is not None
        traits = self._constructed.traits
        if not traits.has_float64:
            return {}
        other = self._evaluate(
            GOLDEN, traits, case.inputs, case.state, {}, (), case.training, substitute=substitute
        ).outputs
        changed = {name: value for name, value in other.items() if not torch.equal(value, case.outputs[name].golden)}
        return {name: replace(case.outputs[name], golden=value) for name, value in changed.items()}

    def substituted_gradients(
        self,
        case: Case,
        substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach"],
        cotangents: Mapping[str, torch.Tensor] | None = None,
    ) -> dict[str, numerics.Expected]:
        """The float64 gradients with a function replaced by its lookalike, or for other grad_outputs.

        Operands whose gradient that changes, by name; empty where the reference does not run in float64.
        """
        self.ready(case)
        assert self._constructed is not None
        traits = self._constructed.traits
        if not traits.has_float64 or not case.values_comparable:
            return {}
        given = case.cotangents if cotangents is None else cotangents
        others = self._evaluate(
            GOLDEN, traits, case.inputs, case.state, given, case.wrt, case.training, substitute=substitute
        ).gradients
        found = {}
        for name, value in others.items():
            expected = case.gradients[name]
            if value is None or (expected is not None and torch.equal(value, expected.golden)):
                continue
            if expected is None:
                label = case.operand_names[name]
                found[name] = numerics.Expected(label, tuple(value.shape), case.operand(name).dtype, value)
            else:
                found[name] = replace(expected, golden=value)
        return found

    def _measure_shipped_error(self, case: Case, tf32: bool) -> dict[str, float]:
        self.ready(case)
        assert self._constructed is not None
        run = self._evaluate(
            MODEL,
            self._constructed.traits,
            case.inputs,
            case.state,
            case.cotangents,
            case.wrt,
            case.training,
            tf32=tf32,
        )
        found = {}
        tables = ((case.outputs, run.outputs), (case.gradients, run.gradients))
        pairs = [(expected, values[name]) for table, values in tables for name, expected in table.items()]
        for expected, value in pairs:
            if expected is not None and value is not None and expected.dtype.is_floating_point:
                error = max(numerics.yardstick([value], expected.golden)[0], expected.error_l2)
                found[expected.name] = error / max(numerics.norm(expected.golden), 1e-300)
        return found

    def forget(self, variant: str) -> None:
        """Drop a variant's cases, which at full size hold gigabytes."""
        self._cases = {key: case for key, case in self._cases.items() if key[0] != variant}

    def modes_differ(self, variant: str) -> bool:
        """train() and eval() give different outputs, or update different buffers."""
        seed = secrets.randbits(62)
        init_inputs, inputs = draw_inputs(self.module.variants[variant], self.device, seed)
        held = self._construct(variant, init_inputs, inputs, training=True)
        traits, state = held.traits, held.state
        results = [self._evaluate(MODEL, traits, inputs, state, {}, (), training) for training in (True, False)]
        return any(
            not _alike(results[0].outputs[name], results[1].outputs[name]) for name in results[0].outputs
        ) or any(not _alike(results[0].buffers[name], results[1].buffers[name]) for name in results[0].buffers)

    def _make(self, variant: Variant, training: bool, draw: int, constant_cotangents: bool) -> Case:
        seed = secrets.randbits(62)
        init_inputs, inputs = draw_inputs(variant, self.device, seed)
        inputs = [parked(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        held = self._construct(variant.name, init_inputs, inputs, training)
        traits, state = held.traits, held.state
        if draw:
            state = {name: _moved(value) for name, value in state.items()}
        cotangents = self._cotangents(traits, constant_cotangents)
        wrt = tuple(
            [f"input[{i}]" for i, value in enumerate(inputs) if is_float(value)]
            + [info.name for info in traits.parameters if info.requires_grad]
        )
        wrt = wrt if cotangents else ()

        def evaluate(model: str, run_inputs: Sequence[object], run_state: Mapping[str, torch.Tensor]) -> Evaluation:
            return self._evaluate(model, traits, run_inputs, run_state, cotangents, wrt, training)

        if self.device is Device.CUDA:
            torch.cuda.empty_cache()  # float64 at full size needs what drawing the inputs left behind
        golden = evaluate(GOLDEN, inputs, state) if traits.has_float64 else None
        eager = evaluate(MODEL, inputs, state)
        trackers = Trackers(eager, golden, has_float64=traits.has_float64)
        if not traits.stochastic:
            for _ in range(PERTURBED_RUNS if traits.has_float64 else 0):
                trackers.add(evaluate(MODEL, _perturbed(inputs, self.device), _perturb_state(state, self.device)))
        lengths = ReductionLengths.of(self.module, variant, self.device)
        operand_names = {operand: self._display(operand) for operand in wrt}
        if any(is_large(value) for value in inputs):
            self.release()
        return Case(
            variant=variant.name,
            training=training,
            seed=seed,
            init_inputs=p.encode_value(list(init_inputs)),
            inputs=tuple(inputs),
            state=state,
            cotangents=cotangents,
            outputs=trackers.expected("outputs", lengths.of_output),
            buffers=trackers.expected("buffers", lengths.of_output),
            gradients={
                **dict.fromkeys(wrt),
                **trackers.expected("gradients", lengths.of_gradient, operand_names),
            },
            operand_names=operand_names,
            clone_inputs=traits.clone_inputs,
            values_comparable=not traits.stochastic,
        )

    def release(self) -> None:
        """Leave the device's memory to others; what the worker held is made anew when it is needed."""
        if self.device is Device.CUDA:
            self._constructed = None
            self._step(p.Drop(models=True))
            self.worker.release_memory()
            torch.cuda.empty_cache()

    def _construct(
        self, variant: str, init_inputs: Sequence[object], inputs: Sequence[object], training: bool
    ) -> _Constructed:
        """Models of these sizes in both precisions, and what a first look at them told; kept until others come."""
        encoded = p.encode_value(list(init_inputs))
        held = self._constructed
        if held is not None and (held.variant, held.training, held.init_inputs) == (variant, training, encoded):
            return held
        key = (variant, training, repr(encoded))
        self._constructed = None
        parameters, buffers = self._make_models(encoded)
        if key not in self._looked:
            self._looked[key] = self._look(parameters, buffers, encoded, inputs, training)
        traits, state = self._looked[key]
        self._constructed = _Constructed(variant, training, encoded, traits, state)
        return self._constructed

    def _make_models(self, encoded: object) -> tuple[tuple[p.TensorInfo, ...], tuple[p.TensorInfo, ...]]:
        self._step(p.Drop(models=True))
        made = None
        for model, float64 in ((GOLDEN, True), (MODEL, False)):
            made = self._step(
                p.Construct(
                    model=model,
                    init_inputs=encoded,
                    device=self.device.value,
                    float64=float64,
                    seed=secrets.randbits(62),
                )
            )
        assert isinstance(made, p.Constructed)
        return made.parameters, made.buffers

    def _look(
        self,
        parameters: tuple[p.TensorInfo, ...],
        buffers: tuple[p.TensorInfo, ...],
        encoded: object,
        inputs: Sequence[object],
        training: bool,
    ) -> tuple[Traits, dict[str, torch.Tensor]]:
        """What the models do, and the float32 model's state as its constructor left it."""
        names = {info.name: TensorSpec.of(info) for info in (*parameters, *buffers)}
        script = Script(self.worker, self.device)
        script.export({f"state:{MODEL}:{name}": spec for name, spec in names.items()})
        sealed = self._run(script).sealed
        state = {name: sealed[f"state:{MODEL}:{name}"] for name in names}
        outputs, clone_inputs = self._probe(MODEL, inputs, training)
        has_float64 = self._golden_runs(inputs, training, clone_inputs)
        traits = Traits(outputs, parameters, buffers, clone_inputs, False, has_float64)
        first, second = (self._evaluate(MODEL, traits, inputs, state, {}, (), training, seed=seed) for seed in (1, 2))
        stochastic = any(not _alike(first.outputs[name], second.outputs[name]) for name in first.outputs)
        return traits._replace(stochastic=stochastic), state

    def _probe(self, model: str, inputs: Sequence[object], training: bool) -> tuple[tuple[p.TensorInfo, ...], bool]:
        """The outputs' descriptions, and whether the reference works in place on its input."""
        for clone_inputs in (False, True):
            script = Script(self.worker, self.device)
            script.put_inputs("a", inputs, requires_grad=True)
            script.step(
                p.Forward(model=model, inputs="a", tape="a", training=training, grad=True, clone_inputs=clone_inputs)
            )
            script.step(p.Drop())
            finding = self._run(script, tolerate_failure=True)
            if finding.failure is None:
                return finding.of(p.Outputs)[0].tensors, clone_inputs
            if "leaf Variable" not in finding.failure.text:
                break
        assert finding.failure is not None
        raise ProblemError(
            f"{self.problem.path}: the reference raised {finding.failure.type_name}: "
            f"{(finding.failure.text.splitlines() or [''])[0]}"
        )

    def _golden_runs(self, inputs: Sequence[object], training: bool, clone_inputs: bool) -> bool:
        script = Script(self.worker, self.device)
        script.put_inputs("a", inputs, float64=True)
        script.step(p.Forward(model=GOLDEN, inputs="a", tape="a", training=training, clone_inputs=clone_inputs))
        script.step(p.Drop())
        return self._run(script, tolerate_failure=True).failure is None

    def _cotangents(self, traits: Traits, constant: bool) -> dict[str, torch.Tensor]:
        found = {}
        for info in traits.outputs:
            if info.kind == "tensor" and info.requires_grad and info.shape is not None and info.dtype is not None:
                dtype = getattr(torch, info.dtype)
                found[info.name] = parked(draw_cotangent(info.shape, dtype, self.device, constant))
        return found

    def _evaluate(
        self,
        model: str,
        traits: Traits,
        inputs: Sequence[object],
        state: Mapping[str, torch.Tensor],
        cotangents: Mapping[str, torch.Tensor],
        wrt: Sequence[str],
        training: bool,
        seed: int = 0,
        tf32: bool = False,
        substitute: Literal["none", "gelu_tanh", "gelu_erf", "no_detach"] = "none",
    ) -> Evaluation:
        """One forward and, with cotangents, one backward, in float32 or float64 as the model is."""
        wide = model == GOLDEN
        # At full size, shared regions would not fit beside what float64 needs to compute, nor what a graph saves.
        large = any(is_large(value) for value in inputs)
        script = Script(self.worker, self.device, through_host=wide and large)
        script.set_state(model, state)
        script.put_inputs("a", inputs, requires_grad=bool(wrt), float64=wide)
        script.step(
            p.Forward(
                model=model,
                inputs="a",
                tape="a",
                training=training,
                grad=bool(wrt),
                seed=seed,
                tf32=tf32,
                clone_inputs=traits.clone_inputs,
                offload=large and bool(wrt),
                substitute=substitute,
            )
        )
        if wrt:
            given = script.cotangents(cotangents)
            script.step(p.Backward(tape="a", grads="a", cotangents=given, wrt=tuple(wrt), tf32=tf32))
        tensors = {f"input[{i}]": value for i, value in enumerate(inputs) if isinstance(value, torch.Tensor)}
        tensors |= state
        outputs = {info.name: _widened(TensorSpec.of(info), wide) for info in traits.outputs if info.kind == "tensor"}
        buffers = {info.name: _widened(TensorSpec.of(info), wide) for info in traits.buffers}
        operands = {name: _widened(TensorSpec(tuple(tensors[name].shape), tensors[name].dtype), wide) for name in wrt}
        script.export({f"output:a:{name}": spec for name, spec in outputs.items()})
        script.export({f"grad:a:{name}": spec for name, spec in operands.items()})
        script.export({f"state:{model}:{name}": spec for name, spec in buffers.items()})
        script.step(p.Drop())
        sealed = self._run(script).sealed
        return Evaluation(
            {name: sealed[f"output:a:{name}"] for name in outputs},
            {name: sealed.get(f"grad:a:{name}") for name in operands},
            {name: sealed[f"state:{model}:{name}"] for name in buffers},
        )

    def _display(self, operand: str) -> str:
        if operand.startswith("input["):
            return self.module.argument_name(int(operand[len("input[") : -1]))
        return operand

    def _step(self, step: p.Step) -> p.Result:
        script = Script(self.worker, self.device)
        script.step(step)
        return self._run(script).evidence.results[0]

    def _run(
        self, script: Script, *, tolerate_failure: bool = False, timeout_seconds: float = REFERENCE_SECONDS
    ) -> Finding:
        try:
            finding = script.run(timeout_seconds)
        except WorkerLost as lost:
            raise ProblemError(f"{self.problem.path}: the reference {lost} on {self.device}") from lost
        if finding.failure is not None and not tolerate_failure:
            failure = finding.failure
            raise ProblemError(
                f"{self.problem.path}: the reference raised {failure.type_name} on {self.device}: "
                f"{(failure.text.splitlines() or [''])[0]}"
            )
        return finding


def draw_inputs(variant: Variant, device: Device, seed: int) -> tuple[list[object], list[object]]:
    """(constructor arguments, forward arguments) of a variant; tensors on the device, floats in float32."""
    with torch.random.fork_rng(devices=[torch.cuda.current_device()] if device is Device.CUDA else []):
        torch.manual_seed(seed)
        init_inputs = list(variant.make_init_inputs())
        with torch.device(device.value):
            inputs = [
                value.to(device.value) if isinstance(value, torch.Tensor) else value for value in variant.make_inputs()
            ]
    return init_inputs, [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def draw_cotangent(shape: tuple[int, ...], dtype: torch.dtype, device: Device, constant: bool) -> torch.Tensor:
    """A standard normal grad_output; `constant`: along the first dimension that is longer than 1."""
    from grader.remote.script import expandable_axis

    drawn = list(shape)
    axis = expandable_axis(shape)
    if constant and axis is not None:
        drawn[axis] = 1
    generator = torch.Generator(device.value).manual_seed(secrets.randbits(62))
    value = torch.randn(drawn, generator=generator, device=device.value, dtype=torch.float32).to(dtype)
    return value.expand(shape).contiguous()


def is_float(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _widened(spec: TensorSpec, wide: bool) -> TensorSpec:
    return TensorSpec(spec.shape, torch.float64) if wide and spec.dtype.is_floating_point else spec


def _perturbed(inputs: Sequence[object], device: Device) -> list[object]:
    return [
        _noisy(value, device) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for value in inputs
    ]


def _perturb_state(state: Mapping[str, torch.Tensor], device: Device) -> dict[str, torch.Tensor]:
    return {name: _noisy(value, device) if value.is_floating_point() else value for name, value in state.items()}


def _noisy(value: torch.Tensor, device: Device) -> torch.Tensor:
    # Relative noise leaves zeros alone: at an exact zero a candidate must follow the reference's convention.
    noisy = value.to(device.value, copy=True).contiguous()
    for piece in torch.split(noisy.view(-1), numerics.CHUNK_ELEMENTS):
        piece *= 1 + PERTURBATION_ULPS * numerics.EPSILON * torch.randn_like(piece)
    return noisy


def _edited(value: object) -> torch.Tensor:
    assert isinstance(value, torch.Tensor)
    copy = value.clone()
    flat = copy.view(-1)
    where = torch.randint(flat.numel(), (EDITS,), device=flat.device)
    flat[where] = -2 * flat[where] - 1
    return copy


def _moved(value: torch.Tensor) -> torch.Tensor:
    """Parameters as some steps of training would leave them, so that values kept from construction show."""
    if not value.is_floating_point():
        return value
    return value * (1 + 0.1 * torch.randn_like(value))


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(
        a, b, rtol=1e-3, atol=1e-3 * float(a.abs().nan_to_num(0, 0, 0).amax()) if a.numel() else 0.0, equal_nan=True
    )
