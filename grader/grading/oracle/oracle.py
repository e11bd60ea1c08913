"""Asks the reference worker for everything that a candidate is held against. Cases are made once and kept."""

from __future__ import annotations

import contextlib
import secrets
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, get_args

import torch

from grader import protocol as p
from grader.catalog.problem_module import FULL, ProblemModule, Variant, load_problem
from grader.errors import ProblemError
from grader.executor import WorkerClient
from grader.grading.compare.outputs import same_bits
from grader.grading.oracle.case import Case, Table
from grader.grading.oracle.drawing import as_trained, draw_cotangent, draw_inputs, is_float
from grader.grading.oracle.evaluation import MODEL, MODEL64, Evaluation, Traits, evaluate
from grader.grading.oracle.fewer_rows import ROWS, with_fewer_rows
from grader.grading.oracle.first_look import SEEDS, at_another_size, first_look, outputs_alike, same
from grader.grading.oracle.large import is_large
from grader.grading.oracle.reductions import ReductionLengths
from grader.grading.oracle.reference_process import ReferenceProcess
from grader.grading.oracle.trackers import track, with_errors_like
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem

FLOAT64_SECONDS = 2.0
"""Time limit for the float64 run at full size; beyond it, the float32 run stands in (`with_errors_like`)."""
WORKERS_KEPT = 3
"""Of one problem: contexts on a GPU are of about so many kinds (worker/pace.py)."""
_Answer = TypeVar("_Answer")


class _Constructed(NamedTuple):
    """The models that the worker holds now."""

    variant: str
    training: bool
    init_inputs: object
    traits: Traits
    state: dict[str, torch.Tensor]
    """As the constructor left it."""


class Oracle(ReferenceProcess):
    """The reference of one problem on one device, with its worker."""

    def __init__(self, problem: Problem, device: Device, worker: WorkerClient) -> None:
        super().__init__(problem, device, worker)
        self.module: ProblemModule = load_problem(problem)
        self._cases: dict[tuple[str, bool, int, bool], Case] = {}
        self._constructed: _Constructed | None = None
        self._looked: dict[tuple[str, bool, str], tuple[Traits, dict[str, torch.Tensor]]] = {}
        self._answers: dict[Hashable, Any] = {}
        self.no_backward: dict[tuple[str, bool], str] = {}
        """By variant and mode: why the reference cannot be differentiated there."""
        self._models: tuple[tuple[p.TensorInfo, ...], tuple[p.TensorInfo, ...]] = ((), ())
        """Parameters and buffers of the models in the worker."""
        self._has_float64 = False
        """The float64 model is in the worker, beside the float32 one."""
        self._seconds: dict[tuple[str, str], float] = {}
        """Of the last run of a variant by a model."""
        self._import()
        self._try_fewer_rows()

    def move_to(self, worker: WorkerClient) -> None:
        """Ask this one from now on, who is new or one of `workers`; what was answered stands. Raises ProblemError."""
        if worker is self.worker:
            return
        self.release()
        self._constructed = None
        new = worker not in self.workers
        self.workers = [worker, *(other for other in self.workers if other is not worker)]
        self._keep(WORKERS_KEPT)
        if new:
            self._import()

    def step_back(self) -> None:
        """Leave the device to another reference; the active process stays, the others end."""
        self.release()
        self._keep(1)
        if backend(self.device).own_memory and not backend(self.device).ample_memory():
            self._cases.clear()
            self._answers.clear()
            torch.cuda.empty_cache()

    def dismiss(self) -> None:
        """Have its processes ended, for `close` to wait less."""
        for worker in self.workers:
            worker.dismiss()

    def close(self) -> None:
        """End its processes; nobody can be asked any more."""
        self._keep(0)

    @property
    def has_fewer_rows(self) -> bool:
        """The problem has one size, and the reference takes fewer rows of its inputs (`fewer_rows`)."""
        return ROWS in self.module.variants

    def case(self, variant: str, *, training: bool = True, draw: int = 0, constant_cotangents: bool = False) -> Case:
        """The draw-th case of a variant; the same one each time it is asked for.

        Draw 0 has the parameters that the constructor makes, but for constants; later draws move all as training would.
        """
        key = (variant, training, draw, constant_cotangents)
        if key not in self._cases:
            self._cases[key] = self._make(self.module.variants[variant], training, draw, constant_cotangents)
        return self._cases[key]

    def ready(self, case: Case, model: str = MODEL) -> None:
        """Have the model of the case's variant in the worker: the float32 one, and where it is asked for the other."""
        held = self._constructed
        if held is None or (held.variant, held.training) != (case.variant, case.training):
            variant = self.module.variants[case.variant]
            init_inputs, inputs = draw_inputs(variant, self.device, secrets.randbits(62))
            self._construct(case.variant, init_inputs, inputs, case.training)
        if model == MODEL64:
            self._construct_float64()

    def traits(self, case: Case) -> Traits:
        """What is known of the reference in the case's sizes and mode."""
        self.ready(case)
        assert self._constructed is not None
        return self._constructed.traits

    def constructed(self, case: Case) -> Mapping[str, torch.Tensor]:
        """Parameters and buffers as the constructor left them."""
        self.ready(case)
        assert self._constructed is not None
        return self._constructed.state

    def remember(self, key: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """What the reference answers to a question that each submission raises, asked once."""
        if key not in self._answers:
            self._answers[key] = ask()
        answer: _Answer = self._answers[key]
        return answer

    def forget(self, variant: str) -> None:
        """Drop a variant's cases, which at full size hold gigabytes."""
        self._cases = {key: case for key, case in self._cases.items() if key[0] != variant}

    def state_bytes(self, case: Case) -> int:
        """Of parameters and buffers."""
        return sum(value.nbytes for value in case.state.values())

    def modes_differ(self, variant: str) -> bool:
        """train() and eval() give different outputs, or update different buffers."""
        seed = secrets.randbits(62)
        init_inputs, inputs = draw_inputs(self.module.variants[variant], self.device, seed)
        held = self._construct(variant, init_inputs, inputs, training=True)
        if held.traits.stochastic:
            return True
        state = as_trained(held.state, held.traits.learned, held.traits.tables)

        def run(training: bool) -> dict[str, torch.Tensor]:
            found = evaluate(self, MODEL, held.traits, inputs, state, {}, (), training)
            return {**found.outputs, **{f"buffer {name}": value for name, value in found.buffers.items()}}

        in_train, in_eval = run(training=True), run(training=False)
        if same(in_train, in_eval):
            return False
        return not outputs_alike(in_train, in_eval) or same(in_train, run(training=True))

    def _keep(self, count: int) -> None:
        """Of the processes, the first so many."""
        for worker in self.workers[count:]:
            worker.close()
        del self.workers[count:]

    def _import(self) -> None:
        self.step(p.Import(source=self.problem.source, file_name=f"{self.problem.id}.py", class_name="Model"))

    def _try_fewer_rows(self) -> None:
        """Have a variant with fewer rows where the problem has one large size only and the reference takes it."""
        whole = self.module
        if set(whole.variants) != {FULL}:
            return
        _, inputs = draw_inputs(whole.variants[FULL], self.device, secrets.randbits(62))
        for self.module in with_fewer_rows(whole, inputs):
            inputs = []
            try:
                self.case(ROWS)
            except ProblemError:
                self._cases.clear()
                self._looked.clear()
                self._constructed = None
                continue
            return
        self.module = whole

    def _make(self, variant: Variant, training: bool, draw: int, constant_cotangents: bool) -> Case:
        seed = secrets.randbits(62)
        init_inputs, inputs = draw_inputs(variant, self.device, seed)
        held = self._construct(variant.name, init_inputs, inputs, training)
        traits, state = held.traits, held.state
        state = as_trained(state, traits.learned, traits.tables, later=draw > 0)
        cotangents = self._cotangents(traits, constant_cotangents)
        wrt = tuple(
            [f"input[{i}]" for i, value in enumerate(inputs) if is_float(value)]
            + [info.name for info in traits.parameters if info.requires_grad]
        )
        wrt = wrt if cotangents else ()
        whole = variant.name == FULL and self.has_fewer_rows
        backend(self.device).empty_cache()  # float64 at full size needs what drawing the inputs left behind

        def run(
            model: str,
            inputs: Sequence[object],
            state: Mapping[str, torch.Tensor],
            seed: int = 0,
            *,
            streamed: bool = False,
        ) -> Evaluation:
            self._construct(variant.name, init_inputs, inputs, training)  # others may have come in between
            if model == MODEL64:
                self._construct_float64()
            started = time.monotonic()
            result = evaluate(
                self, model, traits, inputs, state, cotangents, wrt, training, seed=seed, streamed=streamed
            )
            self._seconds[variant.name, model] = time.monotonic() - started
            return result

        affords = self._affords_float64 if whole else None
        try:
            eager, trackers = track(run, traits, inputs, state, self.device, affords_float64=affords)
        except ProblemError as error:
            if not wrt:
                raise
            self.no_backward[variant.name, training] = str(error)
            cotangents, wrt = {}, ()
            eager, trackers = track(run, traits, inputs, state, self.device, affords_float64=affords)
        sizes = [value.numel() for value in (*inputs, *eager.outputs.values()) if isinstance(value, torch.Tensor)]
        lengths = ReductionLengths(traits.flops, max(sizes, default=1), traits.scanned)
        drawn, optional = set[tuple[Table, str]](), set[str]()
        if traits.stochastic and whole:
            few = self.case(ROWS, training=training)
            drawn, optional = set(few.drawn), set(few.optional)
        elif traits.stochastic:
            for other_seed in range(1, SEEDS):
                other = run(MODEL, inputs, state, other_seed)
                drawn |= _differ(eager, other)
                optional |= {name for name in wrt if _absent(eager.gradients[name]) != _absent(other.gradients[name])}
        operand_names = {operand: self._display(operand) for operand in wrt}
        if any(is_large(value) for value in (*inputs, *state.values())):
            self.release()
        case = Case(
            variant=variant.name,
            training=training,
            seed=seed,
            init_inputs=p.encode_value(list(init_inputs)),
            inputs=tuple(inputs),
            state=state,
            cotangents=cotangents,
            outputs=trackers.expected("outputs", lengths.of_output),
            others=frozenset(info.name for info in traits.outputs if info.kind != "tensor"),
            buffers=trackers.expected("buffers", lengths.of_output),
            gradients={
                **dict.fromkeys(wrt),
                **trackers.expected("gradients", lengths.of_gradient, operand_names),
            },
            operand_names=operand_names,
            clone_inputs=traits.clone_inputs,
            values_comparable=not traits.stochastic,
            drawn=frozenset(drawn),
            optional=frozenset(optional),
        )
        if trackers.exact or not traits.has_float64:
            return case
        return with_errors_like(case, self.case(ROWS, training=training))

    def _affords_float64(self, eager: Evaluation) -> bool:
        """Whether a float64 run at full size fits into the device's free memory and into FLOAT64_SECONDS.

        Its time is estimated from the variant with fewer rows, its memory as twice the float32 run's peak.
        """
        if self.device is not Device.CUDA:
            return True
        few, whole = self._seconds[ROWS, MODEL], self._seconds[FULL, MODEL]
        seconds = self._seconds[ROWS, MODEL64] * whole / few
        tensors = [value for value in (*eager.outputs.values(), *eager.gradients.values()) if value is not None]
        results = sum(value.nbytes for value in tensors)
        largest = max((value.nbytes for value in tensors), default=0)
        needed = 2 * self.worker.peak_device_bytes + results + 4 * largest
        return seconds <= FLOAT64_SECONDS and needed <= torch.cuda.mem_get_info()[0]

    def differentiates_in_eval(self, case: Case) -> bool:
        """The reference's backward runs in eval() too; cuDNN's for recurrent networks does not."""

        def ask() -> bool:
            if not case.wrt:
                return True
            traits = self.traits(case)
            try:
                evaluate(self, MODEL, traits, case.inputs, case.state, case.cotangents, case.wrt, False)
            except ProblemError:
                return False
            return True

        return self.remember(("differentiates in eval", case.variant), ask)

    @contextlib.contextmanager
    def lent(self) -> Iterator[WorkerClient]:
        """Its worker, with the reference imported, for models that are not its own."""
        self._constructed, self._released = None, False
        yield self.worker
        self._constructed = None

    def release(self) -> None:
        """Leave the device's memory to others; what the worker held is made anew when it is needed."""
        if backend(self.device).own_memory and not self._released:
            self._constructed = None
            self.step(p.Drop(models=True))
            self.worker.release_memory()
            backend(self.device).empty_cache()
            self._released = True

    def _construct(
        self, variant: str, init_inputs: Sequence[object], inputs: Sequence[object], training: bool
    ) -> _Constructed:
        """Models of these sizes in both precisions, and what a first look at them told; kept until others come."""
        encoded = p.encode_value(list(init_inputs))
        held = self._constructed
        if held is not None and (held.variant, held.training, held.init_inputs) == (variant, training, encoded):
            return held
        key = (variant, training, repr(encoded))
        if held is None or held.init_inputs != encoded:
            self._constructed, self._has_float64 = None, False
            self.step(p.Drop(models=True))
            made = self._make_model(MODEL, encoded)
            self._models = made.parameters, made.buffers
        few = self._looked.get((ROWS, training, repr(encoded)))
        if key not in self._looked and variant == FULL and few is not None:
            self._looked[key] = at_another_size(self, few[0], inputs, training), few[1]
        elif key not in self._looked:
            self._construct_float64(encoded)
            self._looked[key] = first_look(
                self, *self._models, inputs, training, anew=lambda: self._make_model(MODEL, encoded)
            )
        traits, state = self._looked[key]
        self._constructed = _Constructed(variant, training, encoded, traits, state)
        return self._constructed

    def _construct_float64(self, encoded: object = None) -> None:
        """The float64 model beside the float32 one, when it is first needed."""
        if not self._has_float64:
            if encoded is None:
                assert self._constructed is not None
                encoded = self._constructed.init_inputs
            self._make_model(MODEL64, encoded)
            self._has_float64 = True

    def _make_model(self, model: str, encoded: object) -> p.Constructed:
        """In place of the one that has its name."""
        made = self.step(
            p.Construct(
                model=model,
                init_inputs=encoded,
                device=self.device.value,
                float64=model == MODEL64,
                on_device=True,
                seed=secrets.randbits(62),
            )
        )
        assert isinstance(made, p.Constructed)
        return made

    def _cotangents(self, traits: Traits, constant: bool) -> dict[str, torch.Tensor]:
        found = {}
        for info in traits.outputs:
            if info.kind == "tensor" and info.requires_grad and info.shape is not None and info.dtype is not None:
                dtype = getattr(torch, info.dtype)
                found[info.name] = draw_cotangent(info.shape, dtype, self.device, constant)
        return found

    def _display(self, operand: str) -> str:
        if operand.startswith("input["):
            return self.module.argument_name(int(operand[len("input[") : -1]))
        return operand


def _differ(one: Evaluation, other: Evaluation) -> set[tuple[Table, str]]:
    """In any bit."""
    found = set[tuple[Table, str]]()
    for table in get_args(Table):
        of = getattr(other, table)
        for name, value in getattr(one, table).items():
            if (value is None) != (of[name] is None) or (value is not None and not same_bits(value, of[name])):
                found.add((table, name))
    return found


def _absent(gradient: torch.Tensor | None) -> bool:
    return gradient is None or not bool(gradient.any())
