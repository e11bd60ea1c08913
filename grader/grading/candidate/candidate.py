"""The submission being graded: its worker, its models, and how a case is given to it."""

from __future__ import annotations

import itertools
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from weakref import WeakKeyDictionary

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, WorkerClient, WorkerLost
from grader.grading import chance
from grader.grading.budget import STAGES
from grader.grading.build import construction_failed
from grader.grading.candidate.parameter_matching import Matching, match
from grader.grading.candidate.placement import Constructor, values_alike
from grader.grading.compare.blocks import is_large
from grader.grading.oracle.case import Case, is_input
from grader.grading.oracle.evaluation import MODEL
from grader.grading.stopped import lost, raised
from grader.machine.backends import backend
from grader.verdict.graph_ends import GraphEnds, graph_ends
from grader.verdict.labels import labels
from grader.verdict.models import Device, StageName, TimeLimits


@dataclass(frozen=True)
class Made:
    """A constructed model of a submission."""

    key: str
    """The worker's key of this model, which stays its own while MODEL changes hands."""
    init_inputs: object
    matching: Matching
    buffers: frozenset[str]
    """Names of its buffers."""
    frozen: frozenset[str]
    """Names of its parameters that require no gradient."""


class Candidate:
    """A worker that has imported the submission."""

    def __init__(
        self,
        worker: WorkerClient,
        device: Device,
        limits: TimeLimits,
        *,
        reference_constructor: Constructor | None = None,
        own: Collection[str] = (),
        source: str = "",
    ) -> None:
        """`reference_constructor` serves where names do not pair all parameters; `source` is the submission's.

        `own` are the reference's constants, of which ModelNew keeps what its constructor computed.
        """
        self.worker, self.device, self.limits = worker, device, limits
        self.own, self._source = frozenset(own), source
        self._reference_constructor = reference_constructor
        self.slowest_seconds = 0.0
        """Duration of the slowest job so far: with torch.compile, one that compiled."""
        self.ran_out_of_memory = False
        """Whether memory ran out in a job whose failure `attempt` returned."""
        self.plain_right: WeakKeyDictionary[Case, bool] = WeakKeyDictionary()
        """Whether the plain product of a case was right when it was last seen."""
        self._made: list[Made] = []
        self._active: Made | None = None
        self._keys = (f"{MODEL}{index}" for index in itertools.count())
        self._names_doubted, self._left_out = False, frozenset[str]()

    @cached_property
    def captures_graphs(self) -> bool:
        """Whether its source captures CUDA graphs."""
        return "cuda_graph" in labels(self._source, "")

    @cached_property
    def graph_ends(self) -> GraphEnds:
        """Places where its source ends the autograd graph."""
        return graph_ends(self._source)

    def matching(self, case: Case) -> Matching:
        """The reference's parameters and buffers beside the candidate's, for the case's sizes. Raises Stopped."""
        return self._model(case).matching

    def prepare(self, case: Case) -> Matching:
        """Make the model of the case's sizes active, for jobs that `script` does not start. Raises Stopped."""
        model = self._model(case)
        if model is not self._active:
            doing = f"getting ready for variant {case.variant}"
            evidence = self._do(_activation(model), doing)
            if evidence.failure is not None:
                raise raised(evidence.failure, "load", doing)
            self._active = model
        return model.matching

    def script(self, case: Case) -> JobBuilder:
        """A job that drops what the last one left, and then activates the case's model and sets its state.

        It must run before the next call of `script`. Raises Stopped.
        """
        job, model = JobBuilder(self.worker, self.device), self._model(case)
        job.step(p.Drop(keep_bytes=None))
        if model is not self._active:
            for step in _activation(model):
                job.step(step)
            self._active = model
        self.reset(job, case)
        return job

    def reset(self, job: JobBuilder, case: Case, only: Collection[str] | None = None) -> None:
        """Put the case's parameters and buffers, or `only` some of them, in place; none of its `own`."""
        due = (case.state.keys() if only is None else set(only)) - self.own if self.own else only
        job.set_state(MODEL, self.matching(case).values(case.state, only=due))

    def reset_buffers(self, job: JobBuilder, case: Case) -> None:
        """Put the case's buffers in place: a forward may depend on buffers that it updates."""
        self.reset(job, case, only=case.buffers)

    def operands(self, case: Case) -> dict[str, str]:
        """Reference names to candidate names, for every operand that the candidate has.

        One of the candidate's may be named for several of the reference's.
        """
        places = self.matching(case).places
        inputs = {name: name for name in case.wrt if is_input(name)}
        return {name: inputs.get(name) or places[name].name for name in case.wrt if name in inputs or name in places}

    def unpaired_parameters(self, case: Case) -> tuple[str, ...]:
        """Its parameters that require a gradient and hold none of the reference's tensors."""
        model = self._model(case)
        return tuple(name for name in model.matching.extra if name not in model.buffers | model.frozen)

    def wrt(self, case: Case, frozen: Collection[str] = ()) -> tuple[str, ...]:
        """The candidate's operands that hold any of the reference's but `frozen` ones, each once."""
        return tuple(dict.fromkeys(theirs for ours, theirs in self.operands(case).items() if ours not in frozen))

    def frozen(self, case: Case, frozen: Collection[str]) -> tuple[str, ...]:
        """The candidate's operands that hold nothing but `frozen` ones of the reference."""
        needed = self.wrt(case, frozen)
        return tuple(theirs for theirs in self.wrt(case) if theirs not in needed)

    def buffers(self, case: Case) -> dict[str, str]:
        """Reference names to candidate names, for every buffer that the candidate has."""
        places = self.matching(case).places
        return {name: places[name].name for name in case.buffers if name in places and name not in self.own}

    def shape(self, case: Case, name: str) -> tuple[int, ...]:
        """The shape in which the candidate keeps an operand or buffer."""
        return tuple(case.operand(name).shape) if is_input(name) else self.matching(case).places[name].shape

    def taken(self, case: Case, name: str, value: torch.Tensor) -> torch.Tensor:
        """A value or gradient of the candidate's tensor in the reference's shape."""
        if is_input(name):
            return value.view(case.operand(name).shape)
        return self.matching(case).places[name].take(value)

    def never_differentiated(self, case: Case, name: str) -> str | None:
        """Why ModelNew's tensor for a parameter can have no gradient: `buffer`, `frozen`, or None if it can."""
        made, place = self._model(case), self.matching(case).places.get(name)
        if place is None:
            return None
        return "buffer" if place.name in made.buffers else "frozen" if place.name in made.frozen else None

    def run(self, job: JobBuilder, stage: StageName, doing: str) -> JobResult:
        """The job's result. Raises Stopped when the worker is lost or a step raises."""
        result = self.attempt(job, stage, doing)
        if result.failure is not None:
            raise raised(result.failure, stage, doing)
        return result

    def attempt(self, job: JobBuilder, stage: StageName, doing: str) -> JobResult:
        """The job's result, or its failure. Raises Stopped only when the worker is lost."""
        started = time.monotonic()
        try:
            result = job.run(self.limits.call)
        except WorkerLost as error:
            raise lost(error, stage, doing) from error
        self.slowest_seconds = max(self.slowest_seconds, time.monotonic() - started)
        self.ran_out_of_memory |= result.failure is not None and result.failure.kind == "out_of_memory"
        result.lost_as(lambda error: lost(error, stage, doing))
        return result

    def release(self, stage: StageName) -> None:
        """Give the device's memory back that no model needs. Raises Stopped."""
        job = JobBuilder(self.worker, self.device)
        job.step(p.Drop(keep_bytes=0))
        doing = "giving memory back"
        self.run(job, stage, doing)
        self.release_regions(stage, doing)

    def release_regions(self, stage: StageName, doing: str) -> None:
        """Free the memory that is shared with the worker. Raises Stopped."""
        try:
            with self.worker.within(self.limits.call):
                self.worker.release_memory()
        except WorkerLost as error:
            raise lost(error, stage, doing) from error

    def release_after(self, case: Case, stage: StageName) -> None:
        """Give back what a large case needed on a device with memory of its own. Raises Stopped."""
        if backend(self.device).own_memory and case.nbytes > p.SPARE_BYTES:
            self.release(stage)
            backend(self.device).empty_cache()  # of blocks that only tensors of the same size could use

    def forget(self, *, everything: bool = False) -> None:
        """Have models with buffers, or all, constructed anew: a job may have left its graph or values in them."""
        self._made = [made for made in self._made if not (everything or made.buffers)]
        self._active = None

    def leave_out(self, buffers: Collection[str]) -> None:
        """Go on as if ModelNew did not have these of the reference's buffers."""
        self._left_out |= frozenset(buffers)
        self._made = [replace(made, matching=made.matching.without(self._left_out)) for made in self._made]
        self._active = None

    def pair_by_values(self, case: Case) -> bool:
        """Pair parameters by their values under equal seeds; whether that pairs them otherwise than names.

        Names come first: a submission may create its parameters in another order. Raises Stopped.
        """
        if self._reference_constructor is None or self._names_doubted:
            return False
        by_name = self.matching(case).places
        self._names_doubted, self._made, self._active = True, [], None
        return self.matching(case).places != by_name

    def trust_names(self) -> None:
        """Pair by names again."""
        self._names_doubted, self._made, self._active = False, [], None

    def starts_slowly(self, seconds: float) -> bool:
        """Whether a first call takes longer than all stages of so many seconds, as one does that compiles."""
        return self.slowest_seconds > len(STAGES) * seconds

    def clock(self) -> float:
        """Seconds; of calls on the host, without what its worker waited for a core."""
        return self.worker.busy_seconds() if backend(self.device).on_host else time.monotonic()

    def _model(self, case: Case) -> Made:
        """The model of the case's sizes, constructed when it is first needed. Raises Stopped."""
        made = next((made for made in self._made if made.init_inputs == case.init_inputs), None)
        if made is None:
            made = self._construct(case)
            self._made.append(made)
        return made

    def _construct(self, case: Case) -> Made:
        key, seed = next(self._keys), chance.new_seed()
        doing = f"constructing ModelNew for variant {case.variant}"
        large = any(is_large(value) for value in case.state.values())
        step = p.Construct(
            model=key,
            init_inputs=case.init_inputs,
            device=backend(self.device).torch_device,
            seed=seed,
            on_device=large,
            detach_kept=case.detaches_kept,
        )
        evidence = self._do([step], doing)
        if evidence.failure is not None:
            raise construction_failed(evidence.failure, doing)
        (constructed,) = evidence.results
        assert isinstance(constructed, p.Constructed)
        tensors = (*constructed.parameters, *constructed.buffers)
        reference = [info_of(name, value) for name, value in case.state.items()]
        matching = match(reference, tensors)
        if self._reference_constructor is not None and (matching.unsure or self._names_doubted):
            of_reference = self._reference_constructor(case, seed, large)
            values = values_alike(self, key, tensors, of_reference, loads=not self._names_doubted)
            matching = match(reference, tensors, values, doubted=self._names_doubted)
        buffers = frozenset(info.name for info in constructed.buffers)
        frozen = frozenset(info.name for info in constructed.parameters if info.requires_grad is False)
        return Made(key, case.init_inputs, matching.without(self._left_out), buffers, frozen)

    def _do(self, steps: Sequence[p.Step], doing: str) -> p.Evidence:
        """A job without tensors. Raises Stopped when the worker is lost."""
        try:
            with self.worker.within(self.limits.construction):
                self.worker.forget_results()
                return self.worker.run(steps, self.limits.construction)
        except WorkerLost as error:
            raise lost(error, "load", doing) from error


def _activation(model: Made) -> list[p.Step]:
    """Steps after which MODEL means this model, and nothing that another one left is kept."""
    return [p.Drop(keep_bytes=None), p.Use(model=MODEL, constructed=model.key)]


def info_of(name: str, value: torch.Tensor) -> p.TensorInfo:
    """The description of a reference's tensor."""
    return p.TensorInfo(name=name, shape=tuple(value.shape), dtype=p.dtype_name(value.dtype))
