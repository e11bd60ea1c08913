"""The reference's models in its worker process, which are constructed for one variant at a time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from grader import protocol as p
from grader.catalog.problem_module import ProblemModule, load_problem
from grader.errors import ReferenceRefused
from grader.executor import JobBuilder, TensorSpec, WorkerClient
from grader.grading import chance
from grader.grading.compare.blocks import are_finite, is_large
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL, MODEL64, Evaluation, Pass, evaluate_each
from grader.grading.oracle.fewer_rows import ROWS, WHOLE
from grader.grading.oracle.first_look import at_another_size, first_look, outputs_alike, same
from grader.grading.oracle.reference_process import ReferenceProcess
from grader.grading.oracle.trained_state import as_trained
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import OTHER_DRAWS, draw_inputs
from grader.machine.backends import backend

WORKERS_KEPT = 3
"""Workers of one reference: contexts on a GPU have about as many launch paces (worker/timing/pace.py)."""


class Constructed(NamedTuple):
    """The model in the worker."""

    variant: str
    training: bool
    init_inputs: object
    traits: Traits
    state: dict[str, torch.Tensor]
    """As the constructor leaves it."""


class ReferenceModels:
    """The models of the reference in its process."""

    def __init__(self, process: ReferenceProcess) -> None:
        self.process = process
        module, dtype = load_problem(process.problem), process.precision.meaning.dtype
        self.module: ProblemModule = module if dtype is None else module.in_dtype(getattr(torch, dtype))
        self._constructed: Constructed | None = None
        self._looked: dict[tuple[str, bool, str], tuple[Traits, dict[str, torch.Tensor]]] = {}
        """What first looks showed, by variant, mode and constructor arguments."""
        self._described: dict[str, tuple[tuple[p.TensorInfo, ...], tuple[p.TensorInfo, ...]]] = {}
        """Parameters and buffers by constructor arguments."""
        self._has_float64 = False
        """Whether the float64 model is in the worker, beside the float32 one."""
        self.detaches_kept = False
        """Whether what a forward keeps for the next one, such as a hidden state, is detached in between."""
        self._creates_float64 = False
        """Whether what a forward of the float64 model creates without a dtype is float64, as it must be in some."""
        self._modes_differ: dict[str, bool] = {}
        """By variant, as `modes_differ` found it."""
        process.step(self.importing())

    @property
    def has_fewer_rows(self) -> bool:
        """Whether the problem has one size and the reference takes fewer rows of its inputs (`fewer_rows`)."""
        return ROWS in self.module.variants

    def move_to(self, worker: WorkerClient) -> None:
        """Make this worker, a new one or one that the process kept, the active one. Raises ProblemError."""
        if worker is self.process.worker:
            return
        self.release()
        self._forget_models()
        if self.process.activate(worker, keep=WORKERS_KEPT):
            self.process.step(self.importing())

    def draw(
        self, variant: str, seed: int | None = None, *, repeats: bool = False
    ) -> tuple[list[object], list[object]]:
        """(constructor arguments, forward arguments) of a variant, newly drawn under this seed or any.

        With `repeats`, some integers repeat where each may be any.
        """
        seed = chance.new_seed() if seed is None else seed
        return draw_inputs(self.module.variants[variant], self.process.device, seed, repeats=repeats)

    def ready(self, case: Case) -> None:
        """Construct the model of the case's variant, in its mode."""
        held = self._constructed
        if held is None or (held.variant, held.training) != (case.variant, case.training):
            # Of a large case, another draw would take gigabytes.
            own = p.decode_value(case.init_inputs), case.inputs
            init_inputs, inputs = self.draw(case.variant) if case.released else own
            self.construct(case.variant, init_inputs, inputs, case.training)

    def traits(self, case: Case) -> Traits:
        """Facts about the reference in the case's sizes and mode."""
        self.ready(case)
        assert self._constructed is not None
        return self._constructed.traits

    def constructed(self, case: Case) -> Mapping[str, torch.Tensor]:
        """Parameters and buffers as the constructor leaves them."""
        self.ready(case)
        assert self._constructed is not None
        return self._constructed.state

    @contextlib.contextmanager
    def lent(self) -> Iterator[WorkerClient]:
        """The worker with the reference imported, for models that are constructed elsewhere."""
        self._forget_models()
        self.process.is_released = False
        yield self.process.worker

    def release(self) -> None:
        """Leave the device's memory to others; models are constructed again when they are needed."""
        if backend(self.process.device).own_memory and not self.process.is_released:
            self._forget_models()
            self.process.release()

    def construct(
        self, variant: str, init_inputs: Sequence[object], inputs: Sequence[object], training: bool
    ) -> Constructed:
        """The float32 model of these sizes in the worker, with what a first look at it showed."""
        encoded = p.encode_value(list(init_inputs))
        held = self._constructed
        if held is not None and (held.variant, held.training, held.init_inputs) == (variant, training, encoded):
            return held
        if held is None or held.init_inputs != encoded:
            self._forget_models()
            self.process.pending += [p.Drop(models=True), self._construction(MODEL, encoded)]
        key, like_this = (variant, training, repr(encoded)), (training, repr(encoded))
        few = self._looked.get((ROWS, *like_this))
        if key not in self._looked and variant in WHOLE and few is not None:
            self._looked[key] = at_another_size(self.process, few[0], inputs, training), few[1]
        elif key not in self._looked:
            self._constructed = None  # in case the reference fails
            other_mode = self._looked.get((variant, not training, repr(encoded)))
            self._looked[key] = self._first_look(encoded, inputs, training, other_mode and other_mode[1])
        traits, state = self._looked[key]
        self._constructed = Constructed(variant, training, encoded, traits, state)
        return self._constructed

    def _first_look(
        self, encoded: object, inputs: Sequence[object], training: bool, constructed: dict[str, torch.Tensor] | None
    ) -> tuple[Traits, dict[str, torch.Tensor]]:
        """The first look at the models of these constructor arguments; `constructed` as of `first_look`."""
        if not self._has_float64:
            self.process.pending.append(self._construction(MODEL64, encoded))
            self._has_float64 = True
        tensors = self._described.get(repr(encoded))
        if tensors is None:
            job = JobBuilder(self.process.worker, self.process.device)
            made = self.process.run(job).of(p.Constructed)[0]
            tensors = self._described[repr(encoded)] = made.parameters, made.buffers
        anew = self._construction(MODEL, encoded)
        found = first_look(self.process, *tensors, inputs, training, anew, constructed)
        if not found[0].has_float64 and not self._creates_float64:
            self._creates_float64 = True
            self.process.pending += [p.Drop(models=True), anew, self._construction(MODEL64, encoded)]
            found = first_look(self.process, *tensors, inputs, training, anew, found[1])
            self._creates_float64 = found[0].has_float64
        # Two thirds of the memory of both models are the float64 one's. On the CPU it is not worth the construction.
        if backend(self.process.device).own_memory and any(map(is_large, found[1].values())):
            self.process.pending += [p.Drop(models=True), self._construction(MODEL, encoded)]
            self._has_float64 = False
        return found

    def trained(self, held: Constructed, draw: int) -> dict[str, torch.Tensor]:
        """Parameters and buffers as after training; of later draws, buffers as some forwards leave them.

        They are in train(). A counter, a cache or a queue says something about gradients only where it is not as the
        constructor leaves it.
        """
        state = as_trained(held.state, held.traits, draw)
        if not draw or not held.traits.buffers:
            return state
        *earlier, last = (self.draw(held.variant)[1] for _ in range(1 + chance.draw.randrange(OTHER_DRAWS + 1)))
        try:
            (after,) = self.evaluate_each(held.traits, [Pass(MODEL, last, state, earlier=tuple(earlier))])
        except ReferenceRefused:
            return state
        finite = all(are_finite(list(after.buffers.values())))
        return {**state, **after.buffers} if finite else state

    def ask(self, case: Case, passes: Iterable[Pass], *, streamed: bool = False) -> Iterator[Evaluation]:
        """Yield the results of passes of the case's models."""
        return self.evaluate_each(self.traits(case), passes, streamed=streamed)

    def evaluate_each(self, traits: Traits, passes: Iterable[Pass], *, streamed: bool = False) -> Iterator[Evaluation]:
        """Yield the results of passes of the models in the worker; the float64 one is made when it is needed."""

        def prepared() -> Iterator[Pass]:
            for one in passes:
                if one.in_float64:
                    self._construct_float64()
                yield one

        return evaluate_each(self.process, traits, prepared(), streamed=streamed)

    def _construct_float64(self) -> None:
        """Construct the float64 model beside the float32 one, with the next job."""
        if not self._has_float64:
            assert self._constructed is not None
            self.process.pending.append(self._construction(MODEL64, self._constructed.init_inputs))
            self._has_float64 = True

    def modes_differ(self, variant: str) -> bool:
        """Whether train() and eval() return other outputs, or update other buffers."""
        if variant not in self._modes_differ:
            self._modes_differ[variant] = self._find_whether_modes_differ(variant)
        return self._modes_differ[variant]

    def _find_whether_modes_differ(self, variant: str) -> bool:
        init_inputs, inputs = self.draw(variant)
        held = self.construct(variant, init_inputs, inputs, training=True)
        if held.traits.stochastic:
            return True
        in_train = Pass(MODEL, inputs, as_trained(held.state, held.traits))
        one, other = self.evaluate_each(held.traits, [in_train, replace(in_train, training=False)])
        if one.structure != other.structure:
            return True
        if same(one.observed, other.observed):  # a comparison in every bit takes no further memory
            return False
        again = self.evaluate_each(held.traits, [in_train])
        return not outputs_alike(one.observed, other.observed) or same(one.observed, next(again).observed)

    def constructed_under(self, case: Case, seed: int, on_device: bool) -> dict[str, torch.Tensor]:
        """Parameters and buffers as the constructor leaves them under a seed, on the device or on the CPU."""
        self.ready(case)
        construction = self._construction(MODEL, case.init_inputs)
        job = JobBuilder(self.process.worker, self.process.device)
        job.step(construction.model_copy(update={"seed": seed, "on_device": on_device}))
        parameters, buffers = self._described[repr(case.init_inputs)]
        specs = {info.name: TensorSpec.of(info) for info in (*parameters, *buffers)}
        job.export({p.state_source(MODEL, name): spec for name, spec in specs.items()})
        sealed = self.process.run(job).sealed
        return {name: sealed[p.state_source(MODEL, name)] for name in specs}

    def start_from(self, case: Case, constructed: dict[str, torch.Tensor]) -> None:
        """Take this state for what the constructor leaves, in further draws of the case's size and mode too."""
        self.ready(case)
        assert self._constructed is not None
        self._constructed = held = self._constructed._replace(state=constructed)
        self._looked[held.variant, held.training, repr(held.init_inputs)] = held.traits, constructed

    def _construction(self, model: str, encoded: object) -> p.Construct:
        """The step that constructs a model in place of the one with its name."""
        return p.Construct(
            model=model,
            init_inputs=encoded,
            device=backend(self.process.device).torch_device,
            float64=model == MODEL64,
            float64_factories=model == MODEL64 and self._creates_float64,
            detach_kept=self.detaches_kept,
            on_device=True,
            seed=chance.new_seed(),
        )

    def detach_kept(self, whether: bool) -> None:
        """Construct models anew that detach what a forward keeps for the next one, or do not."""
        self.detaches_kept = whether
        self._forget_models()

    def forget_looks(self) -> None:
        """Look at models anew, as after a change of `module`."""
        self._looked.clear()
        self._constructed = None

    def _forget_models(self) -> None:
        """Have the models constructed anew when they are needed."""
        self._constructed, self._has_float64 = None, False
        self.process.pending = []

    def importing(self) -> p.Import:
        """The step that imports the problem."""
        meaning, problem = self.process.precision.meaning, self.process.problem
        return p.Import(
            source=problem.source,
            file_name=f"{problem.id}.py",
            class_name="Model",
            dtype=meaning.dtype,
            tf32=meaning.tf32,
        )
