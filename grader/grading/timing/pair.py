"""The pair of workers, reference and candidate, ready to time the same calls on the same fresh values.

Forward and backward of a training step are two parts: the grad_output is released when the outputs are sealed. The
candidate's processes are stopped while the reference runs, and on a CPU the other way round too. Inputs, parameters and
grad_outputs are drawn anew for every call.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Self

from grader.errors import GraderError, ReferenceRefused
from grader.executor import WorkerLost
from grader.executor.gpu_timeline import Start
from grader.grading import chance
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.parameter_matching import Matching
from grader.grading.compare.blocks import is_large
from grader.grading.oracle.case import Case, nbytes_of
from grader.grading.oracle.oracle import Oracle
from grader.grading.stopped import Stopped, lost
from grader.grading.timing.calls import Call, Caller, NotQueued, Part, Phase, Side, Which
from grader.grading.timing.clocks import Time
from grader.grading.timing.comparison import Comparison, Wrong
from grader.grading.timing.draws import Draws, Source
from grader.machine.backends import backend
from grader.machine.host import on_one_thread
from grader.verdict.models import Device


class WorkerPair:
    """Both workers, ready to run the same calls on the same fresh values. A context manager."""

    def __init__(
        self,
        candidate: Candidate,
        oracle: Oracle,
        case: Case,
        *,
        tf32: bool,
        few_bits: bool = False,
        timed: bool = True,
        in_turn: bool = False,
    ) -> None:
        """`tf32` allows TensorFloat-32 in cuDNN's convolutions, as PyTorch ships.

        With `few_bits`, training steps run on values that are exact in it. `timed` is False at another size. With
        `in_turn`, each side gives its memory back before the other is called, whether both seem to fit or not.
        """
        self._timed = timed
        self._tf32, self._candidate, self._oracle, self._case = tf32, candidate, oracle, case
        matching = candidate.prepare(case).without(candidate.own)
        oracle.models.ready(case)
        ours = {name: name for name in case.wrt}
        self._sides: dict[Which, Side] = {
            "reference": Side(oracle.process.worker, ours, Matching.of_itself(case.state)),
            "candidate": Side(candidate.worker, candidate.operands(case), matching),
        }
        self._caller = Caller(self._sides, candidate, oracle, case, tf32=tf32)
        self._draws = Draws(oracle, case, few_bits=few_bits)
        self._renewed = False
        """Whether new memory pages have been requested for the next pair."""
        self._in_turn = in_turn or not self._fits(phases=1)
        """Whether each side gives its memory back before the other is called, as where both do not fit."""
        self._keeps = not (self._in_turn and self._draws.repeat)
        """Whether the referee keeps the drawn values for the second side; else it draws them again under the same seed,
        and compares the results call by call."""
        self.together = not self._keeps or (not self._in_turn and self._fits(phases=2))
        """Whether one sample may have calls of all phases. Values drawn again take the memory of one phase only."""
        self._holder: Which | None = None
        """The side that has memory for its calls now, if both take turns."""
        if self._in_turn:
            self._release_memory()
        self.start: Start = "at once"
        """When a GPU begins a call: `at once` for first calls, which load and allocate, and so cannot be queued."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._caller.close()
        if self._holder is not None:
            with contextlib.nullcontext() if kind is None else contextlib.suppress(Stopped, GraderError):
                self._caller.give_back(self._holder)

    def reference_first(self) -> bool:
        """Whether the next pair should begin with the reference: by chance; in turn, if it holds the memory.

        What a side gives back, the driver overwrites; timed calls wait for that, up to a tenth of a second.
        """
        return chance.draw.randrange(2) == 0 if self._holder is None else self._holder == "reference"

    def time_pair(
        self, calls: Mapping[Phase, int], reference_first: bool, *, probe: bool = False, counts: bool = True
    ) -> tuple[dict[Part, Time], dict[Part, Time], Wrong | None]:
        """Times of (reference, candidate) per call, and what was wrong.

        Each side makes so many calls of each phase, on values drawn for this pair alone. With `probe`, if the
        reference is first, one more call of each phase repeats another with a few elements of the inputs changed. It
        is compared and does not count: a result that is kept by a sample of the inputs in timed calls only shows here.
        A pair that does not count takes the pages that there are, and does not wait for quiet memory. Raises NotQueued
        if a call should have been queued and could not be.
        """
        if counts and not (self._renewed or self._in_turn):
            self._caller.renew_pages("reference", "candidate")
        sources = {
            phase: [self._draws.source(training=phase == "training", keep=self._keeps) for _ in range(count)]
            for phase, count in calls.items()
        }
        # The reference first: inputs that it refuses say nothing about a candidate.
        probed = self._add_probes(sources) if probe and reference_first and self._can_probe() else {}
        self._caller.await_pages()
        self._renewed = False
        try:
            made, wrong = self._make_calls(sources, reference_first, counts=counts)
        except ReferenceRefused:
            if not probed:
                raise
            return self.time_pair(calls, reference_first, counts=counts)
        for side in made.values():
            for phase, position in probed.items():
                del side[phase][position]
        return _typical(made["reference"], self._oracle.device), _typical(made["candidate"], self._oracle.device), wrong

    def _make_calls(
        self, sources: Mapping[Phase, Sequence[Source]], reference_first: bool, *, counts: bool
    ) -> tuple[dict[Which, dict[Phase, list[Call]]], Wrong | None]:
        """The calls of each side, without their tensors, and what was wrong. Raises NotQueued."""
        order: tuple[Which, Which] = ("reference", "candidate") if reference_first else ("candidate", "reference")
        wrongs = list[Wrong]()
        try:
            return self._in_order(order, sources, wrongs, counts=counts), next(iter(wrongs), None)
        except NotQueued as error:  # whose traceback would keep gigabytes
            missed = error.reference
        raise NotQueued(reference=missed)

    def _in_order(
        self,
        order: tuple[Which, Which],
        sources: Mapping[Phase, Sequence[Source]],
        wrongs: list[Wrong],
        *,
        counts: bool,
    ) -> dict[Which, dict[Phase, list[Call]]]:
        """The calls of one side, then the other's; what is wrong is added to `wrongs`."""
        first, second = order
        of_first, comparison = self._calls(first, sources, counts=counts), self._comparison()

        def compared(phase: Phase, number: int, call: Call) -> Call:
            """Compare a call of the second side with that of the first, and keep the times of both."""
            sides = {first: of_first[phase][number], second: call}
            if not wrongs:
                found = comparison.difference_of(sources[phase][number], sides["reference"], sides["candidate"])
                wrongs.extend([] if found is None else [found])
            of_first[phase][number] = replace(sides[first], sealed={})
            return replace(call, sealed={})

        of_second: dict[Phase, list[Call]] = {phase: [] for phase in sources}
        if self._keeps:
            of_second |= self._calls(second, sources, counts=counts)
            if not self._in_turn and self._timed:  # for the next pair, while the results of this one are compared
                self._caller.renew_pages("reference", "candidate")
                self._renewed = True
            for phase, calls in of_second.items():
                of_second[phase] = [compared(phase, number, call) for number, call in enumerate(calls)]
        else:
            for phase, of_phase in sources.items():
                for number, source in enumerate(of_phase):
                    # Unnamed, so that its tensors are freed before the next call is made.
                    made = compared(phase, number, self._calls(second, {phase: [source]}, counts=counts)[phase].pop())
                    of_second[phase].append(made)
        return {first: of_first, second: of_second}

    def wake(self, phase: Phase) -> None:
        """Make a call of the reference that does not count: an idle GPU takes some percent longer for one."""
        if not backend(self._oracle.device).on_host:
            self._take_over("reference")
            with self._other_paused("reference"):
                source = self._draws.source(training=phase == "training", keep=True)
                self._caller.calls("reference", {phase: [source]}, self.start, quiet=True)

    def _calls(
        self, which: Which, sources: Mapping[Phase, Sequence[Source]], *, counts: bool
    ) -> dict[Phase, list[Call]]:
        """The calls of one side, undisturbed by the other."""
        took_over = self._take_over(which)
        with self._other_paused(which), _out_of_the_way(self._oracle.device):
            if counts and took_over:
                self._caller.renew_pages(which)
                self._caller.await_pages()
            return self._caller.calls(which, sources, self.start, quiet=counts)

    def _take_over(self, which: Which) -> bool:
        """Have the other side give its memory back, if both take turns and this one does not hold it yet."""
        if not self._in_turn or self._holder == which:
            return False
        if self._holder is not None:
            self._caller.give_back(self._holder)
        self._holder = which
        return True

    def _comparison(self) -> Comparison:
        operands, places = self._sides["candidate"].operands, self._sides["candidate"].matching.places
        return Comparison(self._oracle, self._case, operands, places, self._tf32, self._timed)

    def _add_probes(self, sources: Mapping[Phase, list[Source]]) -> dict[Phase, int]:
        """Insert a probe behind a drawn call of each phase; the positions of the probes."""
        positions = {phase: chance.draw.randrange(len(of_phase)) + 1 for phase, of_phase in sources.items()}
        for phase, position in positions.items():
            sources[phase].insert(position, self._draws.edited(sources[phase][position - 1]))
        return positions

    def _can_probe(self) -> bool:
        """Whether another call fits into the memory and the time of a sample."""
        return not (self._in_turn or self._case.released or any(map(is_large, self._case.inputs)))

    def _fits(self, *, phases: int) -> bool:
        """Whether both sides can keep the memory of a call, beside their shared regions and the referee's own values.

        Each worker took what it does in the checks at full size. Its inbox holds the inputs or the grad_outputs of a
        part, its outbox the outputs or the gradients. The referee has the values drawn for all phases of a sample, and
        the results of both sides.
        """
        own, case = backend(self._oracle.device), self._case
        if not own.own_memory:
            return True
        drawn, cotangents = nbytes_of(case.inputs) + case.state_bytes, nbytes_of(case.cotangents.values())
        outputs = sum(spec.nbytes for spec in case.output_specs.values())
        gradients = nbytes_of(case.operand(name) for name in case.wrt)
        regions = max(drawn, cotangents) + max(outputs, gradients)
        workers = [side.worker.peak_device_bytes + regions for side in self._sides.values()]
        values = [drawn + cotangents + 2 * (outputs + gradients), drawn + 2 * outputs]
        return sum(workers) + sum(values[:phases]) <= own.allocatable_bytes()

    def _release_memory(self) -> None:
        """Free the memory shared with both workers: the checks sent more at a time than timed calls do."""
        self._oracle.process.worker.release_memory()
        self._candidate.release_regions("timing", "getting ready to be timed")

    @contextlib.contextmanager
    def _other_paused(self, which: Which) -> Iterator[None]:
        """Stop the other side: what it left running, such as spinning threads, must not slow this one.

        On a GPU only a candidate could have left anything that does.
        """
        if which == "candidate" and not backend(self._oracle.device).on_host:
            yield
            return
        other = self._sides["candidate" if which == "reference" else "reference"]
        try:
            with other.worker.paused(untrusted=which == "reference"):
                yield
        except WorkerLost as error:
            if which == "candidate":  # the reference was to stand still
                raise
            raise lost(error, "timing", "standing still while the reference is timed") from error


@contextlib.contextmanager
def _out_of_the_way(device: Device) -> Iterator[None]:
    """Keep the referee on one thread; on a CPU, on the core of the worker's main thread.

    See `grader.worker.timing.host`, which puts that thread on the first core.
    """
    cores = os.sched_getaffinity(0)
    with on_one_thread():
        if backend(device).on_host:
            os.sched_setaffinity(0, {min(cores)})
        try:
            yield
        finally:
            os.sched_setaffinity(0, cores)


def _typical(made: Mapping[Phase, Sequence[Call]], device: Device) -> dict[Part, Time]:
    """The time of each part over the calls of its phase."""
    found, middle = dict[Part, Time](), backend(device).timing.middle
    for calls in made.values():
        for part in calls[0].times:
            times = [call.times[part] for call in calls]
            interval = middle([time.interval for time in times])
            waited = interval - middle([time.interval - time.waited for time in times])
            found[part] = Time(middle([time.reported for time in times]), interval, waited=waited)
    return found
