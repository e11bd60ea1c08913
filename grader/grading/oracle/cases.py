"""The cases of a reference: drawn values, and what the reference computes of them, made once and kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from grader import protocol as p
from grader.errors import ReferenceRefused
from grader.executor import TensorSpec
from grader.grading import chance
from grader.grading.budget import Budget
from grader.grading.compare.blocks import LARGE_BYTES, is_large
from grader.grading.oracle import silent_draws
from grader.grading.oracle.case import Case, CaseKey, is_input
from grader.grading.oracle.comparability import NoBackward, NotCompared, Randomness, randomness
from grader.grading.oracle.evaluation import MODEL, Ask, Evaluation, Pass
from grader.grading.oracle.fewer_rows import ROWS, WHOLE, with_errors_like
from grader.grading.oracle.first_look import FEWEST_SEEDS, SEEDS
from grader.grading.oracle.halves import halves
from grader.grading.oracle.models import ReferenceModels
from grader.grading.oracle.run_costs import RunCosts
from grader.grading.oracle.track import track, track_finite
from grader.grading.oracle.trackers import Trackers, reduction_lengths
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import draw_cotangents
from grader.machine.backends import backend

KEEPS_GRAPH = re.compile("a second time|inplace operation")
"""What PyTorch says where a forward keeps a hidden state, with its graph, for the next forward."""


class Cases:
    """The cases of one reference, each made when it is first asked for."""

    def __init__(self, models: ReferenceModels, budget: Budget, costs: RunCosts) -> None:
        self._models, self._budget, self._costs, self._device = models, budget, costs, models.process.device
        self.made: dict[CaseKey, Case] = {}
        self.not_compared = NotCompared()
        self._always_zero: set[str] = set()
        """Operands whose gradients are all zero in every draw."""

    def case(self, variant: str, *, training: bool = True, draw: int = 0) -> Case:
        """The case of a variant with this number of the draw.

        Draw 0 has the constructor's parameters, with those that are constant or of one sign moved; later draws move
        all, as training would. They reuse draw 0's grad_output, as each step of a scalar loss has 1.0, so that a
        gradient that is kept by its grad_output is found. Integers repeat in them, and buffers are as some forwards
        leave them.
        """
        key = CaseKey(variant, training, draw)
        if key not in self.made:
            self.made[key] = self._make(key)
        return self.made[key]

    @property
    def nbytes(self) -> int:
        """Bytes of all cases."""
        return sum(case.nbytes for case in self.made.values())

    def forget(self, variant: str) -> None:
        """Drop a variant's cases, which at full size hold gigabytes, and all that was derived from cases."""
        self._drop_derived()
        self.made = {key: case for key, case in self.made.items() if key.variant != variant}
        noise = self.not_compared.noise
        for place in [place for place in noise if place[0] == variant]:
            del noise[place]

    def forget_all(self) -> None:
        """Drop all cases, but not why some are not compared."""
        self._drop_derived()
        self.made.clear()
        self.not_compared.noise.clear()

    def _drop_derived(self) -> None:
        """Drop what was derived from cases, which may refer to them, and so would not go with them at once."""
        for case in self.made.values():
            case.answers.derived.clear()

    def _make(self, key: CaseKey) -> Case:
        """A newly drawn case, in which no gradient is all zero by chance."""
        case = self._made(key, chance.new_seed())
        if case.nbytes + case.state_bytes >= LARGE_BYTES or self._costs.is_slow(case):
            return case
        other = silent_draws.replacement(self._models, case, key.draw, self._always_zero)
        if other is None:
            return case
        self._models.start_from(case, other.constructed)
        return self._made(key, other.seed, other.trained)

    def _made(self, key: CaseKey, seed: int, trained: Mapping[str, torch.Tensor] | None = None) -> Case:
        """Draw a case, and have the reference compute its values, their errors, and what it draws at random."""
        variant, training, draw = key
        init_inputs, inputs = self._models.draw(variant, seed, repeats=draw > 0)
        held = self._models.construct(variant, init_inputs, inputs, training)
        cotangents = self._cotangents(held.traits, key)
        state = self._models.trained(held, draw) if trained is None else trained
        operands = held.traits.operands(inputs, held.state) if cotangents else ()
        plain = Pass(MODEL, inputs, state, cotangents, operands, training)
        backend(self._device).empty_cache()  # float64 at full size needs what drawing the inputs left behind

        def ask(passes: Iterable[Pass], *, streamed: bool = False) -> Iterator[Evaluation]:
            self._models.construct(variant, init_inputs, inputs, training)  # others may have come in between
            return self._models.evaluate_each(held.traits, passes, streamed=streamed)

        plain, eager, trackers = self._track(ask, plain, held.traits, variant)
        random = self._randomness(ask, plain, eager, held.traits, variant)
        if any(is_large(value) for value in (*inputs, *plain.state.values())):
            self._models.release()
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
            detaches_kept=self._models.detaches_kept,
            values_comparable=not random.matters,
            drawn=random.drawn,
            optional=random.optional,
            sparse=eager.sparse,
        )
        case = self.not_compared.set_apart(case, self._models.modes_differ)
        if trackers.exact or not held.traits.has_float64:
            self._costs.unaffordable.discard(variant)
            return case
        self._costs.unaffordable.add(variant)
        return with_errors_like(case, self.case(ROWS, training=training)) if self._models.has_fewer_rows else case

    def _results(self, plain: Pass, eager: Evaluation, trackers: Trackers, traits: Traits) -> dict[str, Any]:
        """The fields of a case that a candidate's results are compared with."""
        lengths = reduction_lengths(traits, plain.inputs, eager)
        arguments = {f"input[{index}]": self._models.module.argument_name(index) for index in range(len(plain.inputs))}
        names = arguments | {name: name for name in plain.wrt if not is_input(name)}
        return {
            "outputs": trackers.expected("outputs", lengths["outputs"]),
            "buffers": trackers.expected("buffers", lengths["buffers"]),
            "gradients": dict.fromkeys(plain.wrt) | trackers.expected("gradients", lengths["gradients"], names),
            "operand_names": names,
        }

    def _track(self, ask: Ask, plain: Pass, traits: Traits, variant: str) -> tuple[Pass, Evaluation, Trackers]:
        """(the pass, its results, their errors); without gradients if the reference's backward fails."""
        whole = variant in WHOLE and (self._models.has_fewer_rows or backend(self._device).own_memory)
        precision, pace = self._models.process.precision, self._costs.pace(variant)
        run = partial(track, ask, traits=traits, device=self._device, tf32=precision.meaning.tf32, pace=pace)
        if whole:
            in_halves = partial(halves, self._models.evaluate_each, traits)
            run = partial(run, affords_float64=self._costs.affords_float64, halves=in_halves)
        try:
            return track_finite(run, plain)
        except ReferenceRefused as error:
            if not plain.wrt:
                raise
            refused = str(error)
        if not self._models.detaches_kept and KEEPS_GRAPH.search(refused):
            self._models.detach_kept(True)
            with suppress(ReferenceRefused):
                return track_finite(run, plain)
            self._models.detach_kept(False)
        self.not_compared.why[variant, plain.training] = NoBackward(refused, is_noise=False)
        return track_finite(run, replace(plain, cotangents={}, wrt=()))

    def _randomness(self, ask: Ask, plain: Pass, eager: Evaluation, traits: Traits, variant: str) -> Randomness:
        """The tensors that depend on random numbers by more than rounding."""
        if not traits.stochastic:
            return Randomness()
        if variant in WHOLE and self._models.has_fewer_rows:
            few = self.case(ROWS, training=plain.training)
            return Randomness(few.drawn, few.optional)
        fitting = self._budget.stage_seconds / self._costs.pace(variant).seconds[MODEL]
        count = int(min(SEEDS, max(FEWEST_SEEDS, fitting)))
        others = ask(replace(plain, seed=seed) for seed in range(1, count))
        return randomness(eager, others, plain.wrt, reduction_lengths(traits, plain.inputs, eager))

    def _cotangents(self, traits: Traits, key: CaseKey) -> dict[str, torch.Tensor]:
        """The grad_output of each differentiable output: for a later draw that of draw 0, if the shapes agree."""
        specs = {
            info.name: TensorSpec.of(info) for info in traits.outputs if info.kind == "tensor" and info.requires_grad
        }
        first = self.made.get(CaseKey(key.variant, key.training, 0)) if key.draw else None
        if first and {name: TensorSpec.like(value) for name, value in first.cotangents.items()} == specs:
            return dict(first.cotangents)
        return draw_cotangents(specs, self._device)
