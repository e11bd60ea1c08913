"""Grades submissions, one after another.

The process in verbs: check, build, start, plan, forward, backward, time, inspect, appraise, record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice

from grader.catalog.requests import Request, make_request
from grader.executor.launcher import Role
from grader.grading import build, inspection, plan
from grader.grading.ahead import what_was_seen
from grader.grading.attempts import Attempt, diagnosis_of, next_attempt
from grader.grading.backward import judge_backward, judge_small_inputs
from grader.grading.budget import Budget
from grader.grading.builds import Builds
from grader.grading.candidate import Candidate
from grader.grading.forward.judge import judge_forward
from grader.grading.forward.narrow import judge_other_inputs
from grader.grading.forward.probes import NARROW
from grader.grading.oracle.fewer_rows import PARTS, ROWS
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import Stopped, diagnose
from grader.grading.record import Record
from grader.grading.resources import Resources, require_import, require_precision
from grader.grading.timing import judge_timing
from grader.grading.timing.roofline_and_baselines import add_roofline_and_baselines
from grader.machine.backends import backend, default_device, require, select_index
from grader.machine.host import PeakMemory
from grader.options import AUTO, GraderOptions
from grader.verdict.labels import labels
from grader.verdict.models import Device, Environment, Problem, Settings, Status, Submission, Verdict
from grader.verdict.stages import BackwardResult, StageStatus


class Pipeline:
    """Owns the workers and references that a batch shares. A context manager; not thread-safe."""

    def __init__(self, options: GraderOptions) -> None:
        """Raises SandboxUnavailable where the sandbox does not work, UserError for a device that is not here."""
        self.options = options
        select_index(options.device, options.device_index)
        require(options.device)
        self._default_device = default_device() if options.device == AUTO else Device(options.device)
        self.used_before = {of: backend(of).used_bytes() if backend(of).available() else None for of in Device}
        """Bytes of each device's memory that others use."""
        self.resources = Resources(options.sandbox, options.build_cache, options.limits, Budget(options.budget))
        self.builds = Builds(self.resources)

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        self.resources.close()

    def request(self, problem: Problem, submission: Submission) -> Request:
        """The request to grade a submission with these options; `auto` picks the device by its source."""
        device, precision = self.options.device, self.options.precision
        return make_request(
            problem, submission, device=device, default_device=self._default_device, precision=precision
        )

    def settings(self, request: Request) -> Settings:
        """The settings of the request's verdict."""
        return self.options.settings(request.device, request.precision)

    def environment(self, request: Request) -> Environment:
        """The environment of the request's verdict."""
        return self.resources.environment(request.device)

    def grade(self, request: Request, *, upcoming: Request | None = None) -> Verdict:
        """One verdict, whatever happens: a failure of the grader is a verdict too. Raises UserError.

        Workers for the `upcoming` request start in the background.
        """
        following: Attempt | None = Attempt()
        self._spares_ended = self.resources.launcher.spares_ended
        while following is not None:
            attempt = following
            record, following = self._grade(request, attempt, upcoming)
        settings = self.settings(request)
        if attempt.scope in PARTS:  # not ranked, as any verdict on one variant
            settings = settings.model_copy(update={"variant": attempt.scope})
        return record.verdict(settings, self.environment(request))

    def _grade(self, request: Request, attempt: Attempt, upcoming: Request | None) -> tuple[Record, Attempt | None]:
        """What one attempt finds, and the next attempt where one is needed."""
        record, failure = Record(request), None
        try:
            _Grading(self, request, record, attempt.scope, upcoming).run()
        except Exception as error:
            failure = error
            others_lost = self.resources.launcher.spares_ended > self._spares_ended
            record.diagnoses.insert(0, diagnosis_of(error, attempt, others_lost=others_lost))
            if isinstance(error, build.BuildFailed):
                record.build = error.result
            if not isinstance(error, Stopped):
                self.resources.drop_oracle(request.problem, request.device, request.precision)
        following = next_attempt(attempt, record, failure)
        failure = None  # its traceback refers to this frame, and holds the worker's descriptors
        if following is not None or record.status is Status.NOT_RUN:
            record.timed = None
            self.resources.make_room()
        return record, following

    def grade_many(self, requests: Iterable[Request]) -> Generator[Verdict, None, None]:
        """Verdicts in the order of the requests, each as it is reached; extensions are compiled ahead."""
        pending, ahead = iter(requests), deque[Request]()
        with self.builds.ahead():
            while True:
                for request in islice(pending, self.builds.at_a_time + 1 - len(ahead)):
                    ahead.append(request)
                    self.builds.start(request)
                if not ahead:
                    return
                self._look_ahead(ahead)
                yield self.grade(ahead.popleft(), upcoming=ahead[0] if ahead else None)

    def _look_ahead(self, requests: deque[Request]) -> None:
        """While the first is being compiled and its device is idle, have references compute what is compared."""
        waited_for = requests[0].submission
        for device in (of for of in Device if backend(of).builds_apart and backend(of).available()):
            distinct = {(of.problem.source_hash, of.precision): of for of in requests if of.device is device}
            if distinct:
                self.resources.get_ready(list(distinct.values()))
            for of in islice(distinct.values(), backend(device).warm_references):
                if not self.builds.under_way(waited_for):
                    return
                try:
                    oracle = self.resources.oracle(of.problem, device, of.precision)
                    plan.make(oracle, variant=self.options.variant, quick=self.options.quick)
                except Exception:  # It happens again, and is reported, when a submission for this problem is graded.
                    self.resources.drop_oracle(of.problem, device, of.precision)


class _Grading:
    """One submission on its way through the stages: a method is a stage, which fills in its part of the record."""

    candidate: Candidate
    oracle: Oracle
    todo: plan.Todo
    memory: PeakMemory

    def __init__(
        self, pipeline: Pipeline, request: Request, record: Record, scope: plan.Scope, upcoming: Request | None
    ) -> None:
        self.pipeline, self.request, self.record, self.scope = pipeline, request, record, scope
        self.upcoming = upcoming
        self.options, self.resources = pipeline.options, pipeline.resources
        self.backend = backend(request.device)

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
        require_precision(self.request)

    def build(self) -> None:
        """Compile in a worker that does not see the device, where the device wants that. Raises Stopped."""
        device, available = self.request.device, self.backend.available()
        if available:
            self.resources.get_ready([self.request])
        if self.backend.builds_apart:
            with self.record.stage("build"):
                self.record.build = self.pipeline.builds.get(self.request)
        if not available:
            seen = what_was_seen(self.request, self.record.build)
            what = f"{seen}; running it needs a {device.value.upper()} device, and there is none here"
            remedy = "grade it on a machine with one"
            raise Stopped(diagnose("needs_cuda", what, remedy=remedy))

    @contextmanager
    def start(self) -> Iterator[None]:
        """Import the submission in a worker of its own, which compiles it unless that is done. Raises Stopped."""
        launcher, apart = self.resources.launcher, self.backend.builds_apart
        with self.record.stage("start"):
            worker = launcher.take(Role.RUN, self.request.device)
        with launcher.dismissing(worker) if self.backend.ends_in_background and self.upcoming else worker:
            with self.record.stage("start" if apart else "build"):
                built = build.import_submission(
                    *(worker, self.request.submission, self.resources.cache),
                    keep=not apart,
                    timeout_seconds=self.resources.limits.build,
                    precision=self.request.precision,
                )
                self.record.build = self.record.build or built.result
            require_import(built)
            used_before = self.pipeline.used_before[self.request.device]
            with PeakMemory(self.backend, used_before, shared=lambda: launcher.leaving) as self.memory:
                try:
                    self.candidate = Candidate(worker, self.request.device, self.resources.limits)
                    self.candidate.captures_graphs = "cuda_graph" in labels(self.request.submission.source, "")
                    yield
                finally:
                    self.record.peak_device_bytes = self.memory.peak_bytes

    def plan(self) -> None:
        """Choose the cases that the submission is compared on, and have the reference compute them."""
        with self.record.stage("start"):
            self.oracle = self.resources.oracle(self.request.problem, self.request.device, self.request.precision)
            if self.upcoming is not None and backend(self.upcoming.device).available():
                # ready before this submission is timed
                self.resources.get_ready([self.upcoming])
            variant, quick = self.options.variant, self.options.quick
            self.todo = plan.make(self.oracle, variant=variant, quick=quick, scope=self.scope)
            self.candidate.reference_constructor = self.oracle.constructed_under
            self.record.fewer_rows = self.todo.cases[0].variant == ROWS
        self.record.diagnoses += self.todo.notes

    def forward(self) -> bool:
        """Compare outputs and buffers; whether they match."""
        with self.record.stage("forward"):
            todo, seconds = self.todo, self.oracle.budget.stage
            judged = judge_forward(self.candidate, self.oracle, todo.cases, todo.probed, seconds=seconds)
            self.record.forward, self.probes = judged.result, judged.probes
            self.todo = todo.without(judged.left_out)
        self.record.diagnoses += judged.diagnoses
        return judged.result.status is StageStatus.PASSED

    def backward(self) -> bool:
        """Compare gradients; whether the submission is timed, which one without a backward is by its forward."""
        if not self.todo.differentiated:
            self.record.backward = BackwardResult(status=StageStatus.SKIPPED)
            return True
        with self.record.stage("backward"):
            judged = judge_backward(
                self.candidate,
                self.oracle,
                self.todo.differentiated,
                self.todo.experiments,
                seconds=self.oracle.budget.stage,
            )
            peak = {"peak_device_bytes": self.memory.peak_bytes}
            self.record.backward = judged.result.model_copy(update=peak)
        self.record.diagnoses += judged.diagnoses
        return self.record.status in (Status.CORRECT, Status.MISSING_BACKWARD)

    def time(self) -> bool:
        """Time candidate and reference; whether every timed result is right."""
        with self.record.stage("timing"):
            self.resources.align(self.oracle, self.candidate, self.todo.timed, self.todo.rounds)
            judged = judge_timing(
                self.candidate,
                self.oracle,
                self.todo.timed,
                self.todo.rounds,
                training=self.record.status is Status.CORRECT,
                tf32=not self.options.strict_fp32,
                quiet=lambda: self.resources.launcher.quiet(self.request.device),
            )
            self.record.timing, self.record.timed = judged.result, self.todo.timed
        if judged.result.status is StageStatus.FAILED:
            self.record.fail_timing(judged.diagnoses)
            self.oracle.release()
            return False
        self.record.diagnoses += judged.diagnoses
        return True

    def inspect(self) -> None:
        """See which kernels run, and whether they stay within their tensors. A failure to see them changes nothing."""
        case, record = self.todo.cases[0], self.record
        differentiated = record.backward is not None and record.backward.status is StageStatus.PASSED
        if case.released:  # the only case, at full size: another pass between redzones would need as much memory again
            return
        with record.stage("inspection"), ThreadPoolExecutor(1) as thread:
            released = thread.submit(self.oracle.release)  # of a worker that takes no part in this stage
            if self.backend.profiles_quickly or not self.options.quick:
                record.inspected = inspection.profile(self.candidate, self.oracle, case, backward=differentiated)
            for backward in (False, True) if differentiated else (False,):
                if record.add_late(inspection.judge_bounds(self.candidate, case, backward=backward)):
                    break
            released.result()

    def ask_other_inputs(self) -> None:
        """See whether it is right beyond the drawn inputs too. Last, because it may end the submission's process."""
        if NARROW in self.probes and self.record.timing is not None:
            with self.record.stage("inspection"):
                asked = self.candidate, self.oracle, self.todo.cases
                any(self.record.add_late(judge(*asked)) for judge in (judge_other_inputs, judge_small_inputs))

    def keep(self) -> None:
        """Keep the kernels that were compiled while it ran, for another grading of the same source."""
        with self.record.stage("inspection"):
            worker, cache, submission = self.candidate.worker, self.resources.cache, self.request.submission
            added = build.keep_kernels(worker, submission, cache, self.resources.limits.call)
            if self.record.build is not None and added is not None:
                self.record.build = self.record.build.model_copy(update={"kernel_files": added})

    def appraise(self) -> None:
        """Add the roofline bound and the baselines, now that the candidate is gone."""
        add_roofline_and_baselines(self.resources, self.request, self.record, self.options)
