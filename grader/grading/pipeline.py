"""Grades submissions, one after another, each in as many attempts as it needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from grader.catalog.requests import Request, make_request
from grader.errors import Cancelled, UserError
from grader.executor import interrupt
from grader.grading import build, plan, profiling
from grader.grading.attempts import Attempt, diagnosis_of, next_attempt
from grader.grading.budget import Budget
from grader.grading.builds_ahead import BuildsAhead
from grader.grading.one_submission import Grading
from grader.grading.oracle.fewer_rows import PARTS
from grader.grading.record import Record
from grader.grading.resources import Resources
from grader.grading.stopped import Stopped
from grader.machine.backends import backend, default_device, require, select_index
from grader.options import AUTO, GraderOptions
from grader.verdict.models import Device, Environment, Problem, Settings, Status, Submission, Verdict
from grader.verdict.profiles import Profile


class Pipeline:
    """Owns the workers and references that a batch shares. A context manager; not thread-safe."""

    def __init__(self, options: GraderOptions) -> None:
        """Raises SandboxUnavailable where the sandbox does not work, UserError for a device that is not here."""
        self.options = options
        select_index(options.device, options.device_index)
        require(options.device)
        self._default_device = default_device() if options.device == AUTO else Device(options.device)
        self.used_before = {
            device: backend(device).used_bytes() if backend(device).available() else None for device in Device
        }
        """Bytes of each device's memory that others use."""
        self.resources = Resources(options.sandbox, options.build_cache, options.limits, Budget(options.budget))
        self.builds = BuildsAhead(self.resources)
        self._unwanted: dict[int, Request] = {}
        """Stopped requests by identity."""

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        self.builds.close()
        self.resources.close()

    def request(self, problem: Problem, submission: Submission) -> Request:
        """The request to grade a submission with these options; `auto` picks the device by its source."""
        return make_request(problem, submission, self.options, default_device=self._default_device)

    def settings(self, request: Request) -> Settings:
        """The settings of the request's verdict."""
        return self.options.settings(request.device, request.precision)

    def environment(self, request: Request) -> Environment:
        """The environment of the request's verdict."""
        return self.resources.environment(request.device)

    def stop(self, request: Request) -> None:
        """End this request at its next job, or before it begins. Any thread may call this."""
        self._unwanted[id(request)] = request

    def grade(self, request: Request, *, upcoming: Request | None = None) -> Verdict:
        """One verdict, whatever happens: a failure of the grader is a verdict too.

        Workers for the `upcoming` request start in the background. Raises UserError, and Cancelled after `stop`.
        """
        with self._ended_by_stop(request):
            return self._graded(request, upcoming)

    @contextmanager
    def _ended_by_stop(self, request: Request) -> Iterator[None]:
        """Raises Cancelled at the next job after `stop`."""
        try:
            with interrupt.ended_when(lambda: id(request) in self._unwanted):
                yield
        except interrupt.Interrupted:
            # Its reference may have been left in the middle of something.
            self.resources.drop_oracle_of(request)
            raise Cancelled(f"{request.submission.name}: cancelled") from None
        finally:
            self._unwanted.pop(id(request), None)

    def _graded(self, request: Request, upcoming: Request | None) -> Verdict:
        """The verdict of the last attempt. Raises Interrupted after `stop`."""
        interrupt.check()
        following: Attempt | None = Attempt()
        spares_ended = self.resources.launcher.spares_ended
        while following is not None:
            attempt = following
            record, following = self._grade(request, attempt, upcoming, spares_ended)
        settings = self.settings(request)
        if attempt.scope in PARTS:  # not ranked, as any verdict on one variant
            settings = settings.model_copy(update={"variant": attempt.scope})
        return record.verdict(settings, self.environment(request))

    def profile(self, request: Request) -> Profile:
        """A submission and its reference kernel by kernel.

        Raises UserError where one of them does not run, and Cancelled after `stop`.
        """
        try:
            with self._ended_by_stop(request):
                return profiling.profile(self.resources, self.builds, self.options, request)
        except Stopped as stopped:
            raise UserError(f"{request.submission.path}: {stopped.diagnosis.message}") from stopped

    def _grade(
        self, request: Request, attempt: Attempt, upcoming: Request | None, spares_ended: int
    ) -> tuple[Record, Attempt | None]:
        """The record of one attempt, and the next attempt where one is needed.

        `spares_ended` are the processes without a job that had ended before the first attempt.
        """
        record, failure = Record(request), None
        try:
            Grading(
                resources=self.resources,
                builds=self.builds,
                options=self.options,
                request=request,
                record=record,
                attempt=attempt,
                upcoming=upcoming,
                used_before=self.used_before[request.device],
            ).run()
        except Exception as error:
            failure = error
            others_lost = self.resources.launcher.spares_ended > spares_ended
            record.diagnoses.insert(0, diagnosis_of(error, attempt, others_lost=others_lost))
            if isinstance(error, build.BuildFailed):
                record.build = error.result
            if not isinstance(error, Stopped):
                self.resources.drop_oracle_of(request)
        if attempt.asks_less:  # with fewer checks, the next submission would be judged more loosely
            self.resources.drop_oracle_of(request)
        following = next_attempt(attempt, record, failure)
        failure = None  # its traceback refers to this frame, and holds the worker's descriptors
        if following is not None or record.status is Status.NOT_RUN:
            record.timed = None
            self.resources.make_room()
        return record, following

    def grade_many(self, requests: Iterable[Request]) -> Generator[Verdict, None, None]:
        """Verdicts in the order of the requests, each as it is reached; extensions are compiled ahead."""
        pending, ahead = iter(requests), deque[Request]()
        with self.builds.ahead() as start_build:
            while True:
                for request in islice(pending, self.builds.at_a_time + 1 - len(ahead)):
                    ahead.append(request)
                    start_build(request)
                if not ahead:
                    return
                self._look_ahead(ahead)
                yield self.grade(ahead.popleft(), upcoming=ahead[0] if ahead else None)

    def _look_ahead(self, requests: deque[Request]) -> None:
        """While the first is being compiled and its device is idle, have references compute what is compared."""
        waited_for = requests[0].submission
        for device in (kind for kind in Device if backend(kind).builds_apart and backend(kind).available()):
            distinct = {
                (request.problem.source_hash, request.precision): request
                for request in requests
                if request.device is device
            }
            if distinct:
                self.resources.get_ready(list(distinct.values()))
            for request in islice(distinct.values(), backend(device).warm_references):
                if not self.builds.under_way(waited_for):
                    return
                try:
                    oracle = self.resources.oracle(request.problem, device, request.precision)
                    plan.make(oracle, variant=self.options.variant, quick=self.options.quick)
                except Exception:  # It happens again, and is reported, when a submission for this problem is graded.
                    self.resources.drop_oracle(request.problem, device, request.precision)
