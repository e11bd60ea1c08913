"""Asks the reference for everything that a candidate is compared with. Cases are made once and kept."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

import torch

from grader import protocol as p
from grader.catalog.problem_module import FULL
from grader.errors import ReferenceRefused
from grader.executor import TensorSpec, WorkerClient
from grader.grading import chance
from grader.grading.budget import Budget, Stopwatch
from grader.grading.compare.blocks import LARGE_BYTES, is_large
from grader.grading.oracle import silent_draws
from grader.grading.oracle.case import Case, CaseKey, is_input
from grader.grading.oracle.comparability import NoBackward, Randomness, VariantMode, randomness, set_apart
from grader.grading.oracle.evaluation import MODEL, MODEL64, Ask, Evaluation, Pass
from grader.grading.oracle.fewer_rows import ROWS, WHOLE, with_errors_like, with_fewer_rows
from grader.grading.oracle.first_look import FEWEST_SEEDS, SEEDS, outputs_alike, same
from grader.grading.oracle.models import ReferenceModels
from grader.grading.oracle.run_costs import Pace, RunCosts
from grader.grading.oracle.track import track, track_finite
from grader.grading.oracle.trackers import Trackers, reduction_lengths
from grader.grading.oracle.trained_state import as_trained
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import draw_cotangents
from grader.machine.backends import backend
from grader.verdict.models import Device, Problem
from grader.verdict.precision import Precision

KEPT_BYTES = 1 << 30
"""Bytes of cases that are dropped when another problem is graded, and of one that is dropped before it is timed."""
KEEPS_GRAPH = re.compile("a second time|inplace operation")
"""What PyTorch says where a forward keeps a hidden state, with its graph, for the next forward."""
_Answer = TypeVar("_Answer")


class Oracle(ReferenceModels):
    """The reference of one problem on one device: its cases and its answers."""

    def __init__(
        self,
        problem: Problem,
        device: Device,
        worker: WorkerClient,
        budget: Budget | None = None,
        precision: Precision = Precision.FP32,
    ) -> None:
        super().__init__(problem, device, worker, precision)
        self.cases: dict[CaseKey, Case] = {}
        """Those made so far."""
        self._answers: dict[Hashable, Any] = {}
        """About the problem and its sizes; those about a case are its own (`remembered`)."""
        self.budget = budget or Budget()
        self.costs = RunCosts(device)
        self.no_backward: dict[VariantMode, NoBackward] = {}
        """Why gradients are not compared, by variant and mode. Kept when cases go: one size tells it for others."""
        self.noise: dict[VariantMode, Case] = {}
        """Cases whose gradients rounding decides, by variant and mode, with these gradients."""
        self._always_zero: set[str] = set()
        """Operands whose gradients are all zero in every draw."""
        self._try_fewer_rows()

    @property
    def has_fewer_rows(self) -> bool:
        """Whether the problem has one size and the reference takes fewer rows of its inputs (`fewer_rows`)."""
        return ROWS in self.module.variants

    def case(self, variant: str, *, training: bool = True, draw: int = 0) -> Case:
        """The case of a variant with this number of the draw; made once.

        Draw 0 has the constructor's parameters, with those that are constant or of one sign moved; later draws move
        all, as training would. They reuse draw 0's grad_output, as each step of a scalar loss has 1.0, so that a
        gradient that is kept by its grad_output is found. Integers repeat in them, and buffers are as some forwards
        leave them.
        """
        key = CaseKey(variant, training, draw)
        if key not in self.cases:
            self.cases[key] = self._make(key)
        return self.cases[key]

    def remember(self, key: Hashable, ask: Callable[[], _Answer]) -> _Answer:
        """The reference's answer to a question about the problem, which each submission raises; asked once."""
        if key not in self._answers:
            self._answers[key] = ask()
        answer: _Answer = self._answers[key]
        return answer

    def forget(self, variant: str) -> None:
        """Drop a variant's cases, which at full size hold gigabytes, and all that was derived from cases."""
        self._drop_derived()
        self.cases = {key: case for key, case in self.cases.items() if key.variant != variant}
        self.noise = {key: case for key, case in self.noise.items() if key[0] != variant}

    def _drop_derived(self) -> None:
        """Drop what was derived from cases, which may refer to them, and so would not go with them at once."""
        for case in self.cases.values():
            case.answers.derived.clear()

    def step_back(self) -> None:
        """Leave the device to another reference: end all processes but the active one."""
        self.release()
        self._keep(1)
        if backend(self.device).own_memory:
            if sum(case.nbytes for case in self.cases.values()) > KEPT_BYTES:
                self._drop_derived()
                for kept in (self.cases, self.noise):
                    kept.clear()
            backend(self.device).empty_cache()

    def modes_differ(self, variant: str) -> bool:
        """Whether train() and eval() return other outputs, or update other buffers."""
        return self.remember(("modes differ", variant), lambda: self._modes_differ(variant))

    def _modes_differ(self, variant: str) -> bool:
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

    def _try_fewer_rows(self) -> None:
        """Add a variant with fewer rows if the problem has one large size only and the reference takes it."""
        whole = self.module
        if set(whole.variants) != {FULL}:
            return
        _, inputs = self.draw(FULL)
        for tried in with_fewer_rows(whole, inputs):
            inputs, self.module = [], tried
            try:
                self.case(ROWS)
            except ReferenceRefused:
                for kept in (self.cases, self.noise, self.no_backward):
                    kept.clear()
                self.forget_looks()
                continue
            return
        self.module = whole

    def _make(self, key: CaseKey) -> Case:
        """A newly drawn case, in which no gradient is all zero by chance."""
        case = self._made(key, chance.new_seed())
        if case.nbytes + case.state_bytes >= LARGE_BYTES or self.is_slow(case):
            return case
        other = silent_draws.replacement(self, case, key.draw, self._always_zero)
        if other is None:
            return case
        self.start_from(case, other.constructed)
        return self._made(key, other.seed, other.trained)

    def _made(self, key: CaseKey, seed: int, trained: Mapping[str, torch.Tensor] | None = None) -> Case:
        """Draw a case, and have the reference compute its values, their errors, and what it draws at random."""
        variant, training, draw = key
        init_inputs, inputs = self.draw(variant, seed, repeats=draw > 0)
        held = self.construct(variant, init_inputs, inputs, training)
        cotangents = self._cotangents(held.traits, key)
        state = self.trained(held, draw) if trained is None else trained
        operands = held.traits.operands(inputs, held.state) if cotangents else ()
        plain = Pass(MODEL, inputs, state, cotangents, operands, training)
        backend(self.device).empty_cache()  # float64 at full size needs what drawing the inputs left behind

        def ask(passes: Iterable[Pass], *, streamed: bool = False) -> Iterator[Evaluation]:
            self.construct(variant, init_inputs, inputs, training)  # others may have come in between
            return self.evaluate_each(held.traits, passes, streamed=streamed)

        plain, eager, trackers = self._track(ask, plain, held.traits, variant)
        random = self._randomness(ask, plain, eager, held.traits, variant)
        if any(is_large(value) for value in (*inputs, *plain.state.values())):
            self.release()
        case = Case(
            variant=variant,
            training=training,
            seed=seed,
            init_inputs=p.encode_value(list(init_inputs)),
            inputs=tuple(inputs),
            state=plain.state,
            cotangents=plain.cotangents,
            **self._results(plain, eager, trackers, held.traits),
            others=frozenset(info.name for info in held.traits.outputs if info.kind != "tensor"),
            numbers={info.name: info.type_name for info in held.traits.outputs if info.type_name in p.NUMBERS},
            clone_inputs=held.traits.clone_inputs,
            detaches_kept=self.detaches_kept,
            values_comparable=not random.matters,
            drawn=random.drawn,
            optional=random.optional,
        )
        case = set_apart(case, self.no_backward, self.noise, self.modes_differ)
        if trackers.exact or not held.traits.has_float64:
            self.costs.unaffordable.discard(variant)
            return case
        self.costs.unaffordable.add(variant)
        return with_errors_like(case, self.case(ROWS, training=training)) if self.has_fewer_rows else case

    def _results(self, plain: Pass, eager: Evaluation, trackers: Trackers, traits: Traits) -> dict[str, Any]:
        """The fields of a case that a candidate's results are compared with."""
        lengths = reduction_lengths(traits, plain.inputs, eager)
        arguments = {f"input[{index}]": self.module.argument_name(index) for index in range(len(plain.inputs))}
        names = arguments | {name: name for name in plain.wrt if not is_input(name)}
        return {
            "outputs": trackers.expected("outputs", lengths["outputs"]),
            "buffers": trackers.expected("buffers", lengths["buffers"]),
            "gradients": dict.fromkeys(plain.wrt) | trackers.expected("gradients", lengths["gradients"], names),
            "operand_names": names,
        }

    def _track(self, ask: Ask, plain: Pass, traits: Traits, variant: str) -> tuple[Pass, Evaluation, Trackers]:
        """(the pass, its results, their errors); without gradients if the reference's backward fails."""
        whole = variant in WHOLE and (self.has_fewer_rows or backend(self.device).own_memory)
        run = partial(track, ask, traits=traits, device=self.device, tf32=self.precision.meaning.tf32)
        run = partial(run, pace=self._pace(variant), affords_float64=self._affords_float64 if whole else None)
        try:
            return track_finite(run, plain)
        except ReferenceRefused as error:
            if not plain.wrt:
                raise
            refused = str(error)
        if not self.detaches_kept and KEEPS_GRAPH.search(refused):
            self.detach_kept(True)
            with suppress(ReferenceRefused):
                return track_finite(run, plain)
            self.detach_kept(False)
        self.no_backward[variant, plain.training] = NoBackward(refused, is_noise=False)
        return track_finite(run, replace(plain, cotangents={}, wrt=()))

    def _randomness(self, ask: Ask, plain: Pass, eager: Evaluation, traits: Traits, variant: str) -> Randomness:
        """The tensors that depend on random numbers by more than rounding."""
        if not traits.stochastic:
            return Randomness()
        if variant in WHOLE and self.has_fewer_rows:
            few = self.case(ROWS, training=plain.training)
            return Randomness(few.drawn, few.optional)
        count = int(min(SEEDS, max(FEWEST_SEEDS, self.budget.stage_seconds / self._pace(variant).seconds[MODEL])))
        others = ask(replace(plain, seed=seed) for seed in range(1, count))
        return randomness(eager, others, plain.wrt, reduction_lengths(traits, plain.inputs, eager))

    def _pace(self, variant: str) -> Pace:
        return self.costs.pace(variant, self.budget.product_seconds, self.clock)

    def is_slow(self, case: Case) -> bool:
        """Whether a pass of this size takes so long that it has one draw and one perturbed run."""
        return self.seconds_of(case) > self.budget.product_seconds

    def seconds_of(self, case: Case) -> float:
        """Seconds of a forward and backward of this size, on average over the runs of a case."""
        pace = self._pace(case.variant)
        first = pace.seconds.get(MODEL, 0.0)
        if pace.average(first) <= pace.limit:
            return pace.average(first)
        again = partial(
            Stopwatch(self.clock).steady, case.variant, pace.limit, lambda: next(self.ask(case, [Pass.of(case)]))
        )
        return pace.average(min(first, self.remember(("seconds", case.variant), again)))

    def runs_float64(self, case: Case) -> bool:
        """Whether the reference runs in float64, and such runs of this size fit into the memory and the time."""
        return self.traits(case).has_float64 and case.variant not in self.costs.unaffordable

    def exact_seconds(self, case: Case) -> float:
        """Seconds of a float64 forward and backward of this size; 0 where it was not run by itself."""
        return self.costs.seconds(case.variant, MODEL64)

    def _affords_float64(self, eager: Evaluation) -> bool:
        """Whether a float64 run at full size is affordable beside the eager one."""
        return self.costs.affords_float64(eager, self.worker.peak_device_bytes, self.budget.product_seconds)

    def _cotangents(self, traits: Traits, key: CaseKey) -> dict[str, torch.Tensor]:
        """The grad_output of each differentiable output: for a later draw that of draw 0, if the shapes agree."""
        specs = {
            info.name: TensorSpec.of(info) for info in traits.outputs if info.kind == "tensor" and info.requires_grad
        }
        first = self.cases.get(CaseKey(key.variant, key.training, 0)) if key.draw else None
        if first and {name: TensorSpec.like(value) for name, value in first.cotangents.items()} == specs:
            return dict(first.cotangents)
        return draw_cotangents(specs, self.device)
