"""Takes one submission through the stages.

The process in verbs: check, build, start, plan, forward, backward, time, inspect, ask, keep, appraise.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

from grader.catalog.requests import Request
from grader.executor import WorkerClient
from grader.executor.launcher import Role
from grader.grading import build, inspection, plan
from grader.grading.attempts import Attempt
from grader.grading.backward.judge import judge_backward
from grader.grading.backward.other_inputs import judge_other_gradients, other_inputs_left_out
from grader.grading.builds_ahead import BuildsAhead, what_was_seen
from grader.grading.candidate.candidate import Candidate
from grader.grading.forward.constants import constants
from grader.grading.forward.judge import judge_forward
from grader.grading.forward.other_inputs import judge_other_inputs, wrong_changes
from grader.grading.forward.probes import NARROW
from grader.grading.messages import diagnose
from grader.grading.oracle.fewer_rows import ROWS
from grader.grading.oracle.oracle import Oracle
from grader.grading.record import Record
from grader.grading.resources import Resources
from grader.grading.shortage import end_and_measure_shares, fills_memory, is_own_shortage, is_shortage
from grader.grading.stopped import Stopped
from grader.grading.timing.judge import judge_timing
from grader.grading.timing.roofline import above_roofline, counted_work, narrow_operands
from grader.grading.timing.untimed import faults_of_draws
from grader.machine.backends import DeviceBackend, backend
from grader.machine.host import PeakMemory
from grader.options import GraderOptions
from grader.verdict.models import Status
from grader.verdict.stages import BackwardResult, StageStatus


@dataclass
class Grading:
    """One submission on its way through the stages.

    A method is a stage, which fills in its part of the record. `start` sets the worker and the memory, `plan` the rest.
    """

    resources: Resources
    builds: BuildsAhead
    options: GraderOptions
    request: Request
    record: Record
    attempt: Attempt
    upcoming: Request | None
    """The next request, for which workers start meanwhile."""
    used_before: int | None
    """Bytes of the device's memory that others use."""
    worker: WorkerClient = field(init=False)
    memory: PeakMemory = field(init=False)
    started_oracle: Oracle | None = None
    """The reference, once `plan` has started it."""
    todo: plan.Todo = field(init=False)
    candidate: Candidate = field(init=False)
    probes: tuple[str, ...] = ()
    """The codes of the forward's probes for which there is time, once it is judged."""

    @property
    def oracle(self) -> Oracle:
        """The reference, which `plan` starts."""
        assert self.started_oracle is not None
        return self.started_oracle

    @property
    def backend(self) -> DeviceBackend:
        """The device's."""
        return backend(self.request.device)

    def run(self) -> None:
        """Each stage runs only if the one before lets the submission through. Raises Stopped, ProblemError."""
        self.check()
        self.build()
        with self.start():
            self.plan()
            if self.forward() and self.backward() and self.time():
                self.inspect()
                self.ask_other_inputs()
            self.keep()
        self.appraise()

    def check(self) -> None:
        """Raises Stopped for a source that no worker needs to see."""
        build.check_source(self.request.submission)
        build.require_precision(self.request)

    def build(self) -> None:
        """Compile in a worker that does not see the device, where the device wants that. Raises Stopped."""
        device, available = self.request.device, self.backend.available()
        if available:
            self.resources.get_ready([self.request])
        if self.backend.builds_apart:
            with self.record.stage("build"):
                self.record.build = self.builds.get(self.request)
        if not available:
            seen = what_was_seen(self.request, self.record.build)
            what = f"{seen}; running it needs a {device.value.upper()} device, and there is none here"
            raise Stopped(diagnose("needs_cuda", what, remedy="grade it on a machine with one"))

    @contextmanager
    def start(self) -> Iterator[None]:
        """Import the submission in a worker of its own, which compiles it unless that is done. Raises Stopped."""
        launcher, apart = self.resources.launcher, self.backend.builds_apart
        with self.record.stage("start"):
            worker = launcher.take(Role.RUN, self.request.device)
        with launcher.dismissing(worker) if self.backend.ends_in_background else worker:
            with self.record.stage("start" if apart else "build"):
                given = worker, self.request.submission, self.resources.cache
                seconds, precision = self.resources.limits.build, self.request.precision
                built = build.import_submission(*given, keep=not apart, timeout_seconds=seconds, precision=precision)
                self.record.build = self.record.build or built.result
            build.require_import(built)
            with PeakMemory(self.backend, self.used_before, shared=lambda: launcher.leaving) as self.memory:
                self.worker = worker
                try:
                    yield
                except Exception as error:
                    self._blame_for_shortage(error)
                    raise
                finally:
                    self.record.peak_device_bytes = self.memory.peak_bytes

    def plan(self) -> None:
        """Choose the cases that the submission is compared on, and have the reference compute them."""
        with self.record.stage("start"):
            self.started_oracle = self.resources.oracle_of(self.request)
            if self.upcoming is not None and backend(self.upcoming.device).available():
                self.resources.get_ready([self.upcoming])  # before this submission is timed
            self.todo = plan.make(
                self.oracle,
                variant=self.options.variant,
                quick=self.options.quick,
                scope=self.attempt.scope,
                fewer_rows=self.attempt.fewer_rows,
                sparing=self.attempt.sparing,
                precise=self.attempt.precise,
            )
            if self.attempt.sparing:
                self.oracle.release()
            self.candidate = Candidate(
                self.worker,
                self.request.device,
                self.resources.limits,
                reference_constructor=self.oracle.models.constructed_under,
                own=constants(self.oracle, self.todo.cases),
                source=self.request.submission.source,
            )
            self.record.fewer_rows = self.todo.cases[0].variant == ROWS
            self.record.whole_backward = bool(self.todo.timed.wrt or self.todo.noise)
            self.record.float64_is_slow = self.oracle.costs.float64_is_slow
            self.record.large = plan.is_large_case(self.oracle, self.todo.timed)
        self.record.diagnoses += self.todo.notes

    def forward(self) -> bool:
        """Compare outputs and buffers; whether they match."""
        with self.record.stage("forward"):
            todo, seconds = self.todo, self.oracle.budget.stage_seconds
            judged = judge_forward(self.candidate, self.oracle, todo.cases, todo.probed, seconds=seconds)
            self.record.forward, self.probes = judged.result, judged.probes
            self.todo = todo.without(judged.sizes_left_out)
        self.record.diagnoses += judged.diagnoses
        return judged.result.status is StageStatus.PASSED

    def backward(self) -> bool:
        """Compare gradients; whether the submission is timed, which one without a backward is by its forward."""
        if not (self.todo.differentiated or self.todo.noise):
            self.record.backward = BackwardResult(status=StageStatus.SKIPPED)
            return True
        with self.record.stage("backward"):
            judged = judge_backward(
                self.candidate,
                self.oracle,
                self.todo.differentiated,
                self.todo.experiments,
                noise=self.todo.noise,
                seconds=self.oracle.budget.stage_seconds,
            )
            self.record.backward = judged.result.model_copy(update={"peak_device_bytes": self.memory.peak_bytes})
        self.record.diagnoses += judged.diagnoses
        self.record.fail_later(judged.diagnoses)
        return self.record.status in (Status.CORRECT, Status.MISSING_BACKWARD)

    def time(self) -> bool:
        """Time candidate and reference; whether every timed result is right."""
        with self.record.stage("timing"):
            apart = self.resources.align(self.oracle, self.candidate, self.todo.timed, self.todo.rounds)
            judged = judge_timing(
                self.candidate,
                self.oracle,
                self.todo.timed,
                self.todo.rounds,
                training=self.record.status is Status.CORRECT,
                tf32=not self.options.strict_fp32,
                others=self.todo.other_sizes,
                pace_apart=apart,
                quiet=lambda: self.resources.launcher.quiet(self.request.device),
            )
            self.record.timing, self.record.timed = judged.result, self.todo.timed
        if judged.result.status is StageStatus.FAILED:
            right = self.record.status is Status.CORRECT
            run_on = self.todo.experiments if right else ()
            untimed = faults_of_draws(self.candidate, self.oracle, self.todo.timed, run_on)
            self.record.fail_timing(untimed or judged.diagnoses)
            self.oracle.release()
            return False
        self.record.diagnoses += judged.diagnoses
        return True

    def inspect(self) -> None:
        """See which kernels run, and whether they stay within their tensors.

        A failure to see them changes nothing.
        """
        case, record, oracle = self.todo.cases[0], self.record, self.oracle
        differentiated = record.backward is not None and record.backward.status is StageStatus.PASSED
        if case.released:  # the only case, at full size: another pass between redzones would need as much memory again
            return
        with record.stage("inspection"), ThreadPoolExecutor(1) as thread:
            # PyTorch takes ten times as long for the operators of a network when each is watched.
            seconds = min(oracle.budget.stage_seconds + 10 * oracle.costs.seconds_of(case), self.resources.limits.call)
            if self.backend.profiles_quickly or not self.options.quick:
                record.inspected = inspection.profile(self.candidate, oracle, case, backward=differentiated)
            released = thread.submit(oracle.release)  # of a worker that takes no part in what follows
            for backward in (False, True) if differentiated else (False,):
                found = inspection.judge_bounds(self.candidate, case, backward=backward, seconds=seconds)
                if record.add_late(found):
                    break
            released.result()

    def ask_other_inputs(self) -> None:
        """See whether it is right beyond the drawn inputs too.

        Last, because it may end the submission's process.
        """
        if NARROW in self.probes and self.record.timing is not None:
            right = self.record.backward is not None and self.record.backward.status is StageStatus.PASSED
            with self.record.stage("inspection"):
                given = self.candidate, self.oracle, self.todo.cases
                narrow = judge_other_inputs(*given)
                if not self.record.add_late(narrow) and right and not self.candidate.worker.ended:
                    gradients = judge_other_gradients(*given, wrong_changes(narrow))
                    if narrow is None or (gradients is not None and gradients.severity == "error"):
                        self.record.add_late(gradients)
                self.record.diagnoses += other_inputs_left_out(self.oracle, self.todo.cases)

    def keep(self) -> None:
        """Keep the kernels that were compiled while it ran, for another grading of the same source."""
        with self.record.stage("inspection"):
            submission, cache = self.request.submission, self.resources.cache
            added = build.keep_kernels(self.worker, submission, cache, self.resources.limits.call)
            if self.record.build is not None and added is not None:
                self.record.build = self.record.build.model_copy(update={"kernel_files": added})

    def appraise(self) -> None:
        """Add figures to compare its times with, now that the candidate is gone and cannot be disturbed.

        They are the roofline bound, and baselines if the options ask for them. The times stand without them: a failure
        here costs these figures alone, and is noted in a diagnosis.
        """
        record, request, resources, tf32 = self.record, self.request, self.resources, not self.options.strict_fp32
        case = record.timed
        if record.timing is None or case is None or record.timing.status is not StageStatus.PASSED:
            return
        with record.stage("timing"):
            try:
                oracle = resources.oracle_of(request)
                work, narrow = counted_work(oracle, case), narrow_operands(case)
                record.timing = resources.roofline.bounds(oracle, work, record.timing, tf32=tf32, narrow=narrow)
                oracle.release()
                if self.options.baselines:
                    found = resources.baselines(oracle, case, tf32=tf32)
                    record.timing = record.timing.model_copy(update={"baselines": found.timed})
                    record.diagnoses += [diagnose("not_appraised", why, severity="info") for why in found.missing]
            except Exception as error:
                resources.drop_oracle_of(request)
                what = f"the roofline bound and baselines could not be measured: {type(error).__name__}: {error}"
                record.diagnoses.append(diagnose("not_appraised", what[:500], severity="info"))
        record.diagnoses += above_roofline(record.timing)

    def _blame_for_shortage(self, error: Exception) -> None:
        """If memory ran out, record whether it was withheld. Raises Stopped if the submission withheld it."""
        own = is_own_shortage(error)
        if self.started_oracle is None or not (own or is_shortage(error)):
            return
        memory = end_and_measure_shares(self.worker, self.started_oracle, self.resources.limits.call)
        self.record.memory_withheld = memory is not None and memory.had < memory.needed
        if memory is not None and not own and (filled := fills_memory(memory)) is not None:
            self.resources.drop_oracle_of(self.request)
            raise filled from error
