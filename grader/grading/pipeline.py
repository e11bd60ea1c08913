"""Grades one submission after another. In verbs: check, build, compare the forward, the backward, time, judge."""

from __future__ import annotations

import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Literal

import torch

from grader.catalog.device_detection import needs
from grader.errors import ProblemError, UserError
from grader.executor.launcher import Role
from grader.grading import build, inspection, plan
from grader.grading.backward import judge_backward
from grader.grading.builds import Builds
from grader.grading.candidate import Candidate
from grader.grading.forward.judge import judge_forward
from grader.grading.oracle.case import Case
from grader.grading.oracle.oracle import Oracle
from grader.grading.outcome import Stopped, diagnose
from grader.grading.record import Record
from grader.grading.resources import ORACLES_KEPT, Resources, SandboxChoice, require_import
from grader.grading.timing import judge_timing
from grader.grading.timing.roofline_and_baselines import add_roofline_and_baselines
from grader.machine.device_memory import PeakMemory, used_bytes
from grader.verdict.models import (
    BackwardResult,
    Device,
    Environment,
    Problem,
    Settings,
    StageStatus,
    Status,
    Submission,
    TimeLimits,
    Verdict,
)

DeviceChoice = Literal["auto", "cpu", "cuda"]


class Grader:
    """Owns the sandboxes, the workers and the references that a batch shares. A context manager; not thread-safe."""

    def __init__(
        self,
        *,
        device: DeviceChoice = "auto",
        sandbox: SandboxChoice = "auto",
        quick: bool = False,
        variant: str | None = None,
        build_cache: Path | None = None,
        limits: TimeLimits | None = None,
        strict_fp32: bool = False,
        baselines: bool = False,
    ) -> None:
        """`strict_fp32`: time with TensorFloat-32 off on both sides. `baselines`: time torch.compile of the reference
        too, which takes minutes once for each problem.

        Raises SandboxUnavailable where the sandbox does not work, UserError for a device that is not here.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise UserError("--device cuda: no CUDA device is here; leave it out, or use --device cpu")
        self._device, self._sandbox_choice, self._quick, self._variant = device, sandbox, quick, variant
        self._strict_fp32, self._baselines = strict_fp32, baselines
        self._baseline_bytes = used_bytes() if torch.cuda.is_available() else 0
        self.resources = Resources(sandbox, build_cache, limits)
        self._builds = Builds(self.resources)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        self.resources.close()

    def grade(self, problem: Problem, submission: Submission, *, more_to_come: bool = False) -> Verdict:
        """One verdict, whatever happens: our own failures are a verdict too.

        `more_to_come` starts the next submission's worker in the background.
        """
        record, settings = Record(), self.settings_for(submission)
        try:
            self._grade(problem, submission, settings.device, record, more_to_come)
            add_roofline_and_baselines(
                self.resources,
                problem,
                settings.device,
                record,
                tf32=not self._strict_fp32,
                baselines=self._baselines,
            )
        except Stopped as stopped:
            record.diagnoses.insert(0, stopped.diagnosis)
            if isinstance(stopped, build.BuildFailed):
                record.build = stopped.result
        except ProblemError as error:
            record.diagnoses.insert(0, diagnose("problem_not_gradable", str(error)))
            self.resources.drop_oracle(problem, settings.device)
        except UserError:
            raise
        except Exception as error:
            detail = {"traceback": traceback.format_exc()}
            record.diagnoses.insert(0, diagnose("grader_failed", f"{type(error).__name__}: {error}", detail=detail))
            self.resources.drop_oracle(problem, settings.device)
        return record.verdict(problem, submission, settings, self.resources.environment(settings.device))

    def grade_many(
        self, work: Iterable[tuple[Problem, Submission]]
    ) -> Generator[tuple[Problem, Submission, Verdict], None, None]:
        """Verdicts in the order of the work, each as it is reached; CUDA extensions are compiled ahead, in parallel."""
        pending, ahead = iter(work), deque[tuple[Problem, Submission]]()
        with self._builds.ahead():
            while True:
                for problem, submission in islice(pending, self._builds.at_a_time + 1 - len(ahead)):
                    ahead.append((problem, submission))
                    if self.settings_for(submission).device is Device.CUDA:
                        self._builds.start(submission)
                if not ahead:
                    return
                current = ahead.popleft()
                self._look_ahead([current, *ahead])
                yield *current, self.grade(*current, more_to_come=bool(ahead))

    def settings_for(self, submission: Submission) -> Settings:
        """`auto` picks a device by what the submission is written for: a CPU extension stays on the CPU."""
        device = Device(self._device) if self._device != "auto" else _suited(submission)
        return Settings(
            device=device,
            variant=self._variant,
            quick=self._quick,
            sandbox=self._sandbox_choice,
            strict_fp32=self._strict_fp32,
        )

    def environment_for(self, submission: Submission) -> Environment:
        """The machine and versions that a verdict on it will carry."""
        return self.resources.environment(self.settings_for(submission).device)

    def _grade(
        self, problem: Problem, submission: Submission, device: Device, record: Record, more_to_come: bool
    ) -> None:
        build.check_source(submission)
        if device is Device.CPU or torch.cuda.is_available():
            self.resources.get_ready([problem], device)
        if device is Device.CUDA:
            self._grade_on_gpu(problem, submission, record, more_to_come)
            return
        with record.stage("start"):
            worker = self.resources.launcher.take(Role.RUN, device, more_to_come=more_to_come)
        with worker:
            with record.stage("build"):
                built = build.import_submission(
                    worker, submission, self.resources.cache, keep=True, timeout_seconds=self.resources.limits.build
                )
                record.build = built.result
            require_import(built)
            self._examine(problem, submission, Candidate(worker, device, self.resources.limits), record)

    def _grade_on_gpu(self, problem: Problem, submission: Submission, record: Record, more_to_come: bool) -> None:
        """Compiles without GPU devices in sight, then runs in another sandbox that has them."""
        launcher = self.resources.launcher
        with record.stage("build"):
            record.build = self._builds.get(submission)
        if not torch.cuda.is_available():
            seen = "it compiles" if record.build and record.build.extensions else "nothing was compiled by importing it"
            message = f"{seen}; running it needs a CUDA device, and there is none here"
            record.diagnoses.append(diagnose("needs_cuda", message))
            return
        with record.stage("start"):
            worker = launcher.take(Role.RUN, Device.CUDA, more_to_come=more_to_come)
        with launcher.dismissing(worker) if more_to_come else worker:
            with record.stage("start"):
                built = build.import_submission(
                    worker, submission, self.resources.cache, keep=False, timeout_seconds=self.resources.limits.build
                )
            record.build = record.build or built.result
            require_import(built)
            with PeakMemory(self._baseline_bytes, shared=lambda: launcher.leaving) as memory:
                try:
                    candidate = Candidate(worker, Device.CUDA, self.resources.limits)
                    self._examine(problem, submission, candidate, record, memory)
                finally:
                    record.peak_device_bytes = memory.peak_bytes

    def _look_ahead(self, work: Sequence[tuple[Problem, Submission]]) -> None:
        """While the first is being compiled and the GPU is idle: ask references what submissions are held against."""
        on_gpu = (problem for problem, submission in work if self.settings_for(submission).device is Device.CUDA)
        problems = {problem.source_hash: problem for problem in on_gpu}
        if problems and torch.cuda.is_available():
            self.resources.get_ready(list(problems.values()), Device.CUDA)
        for problem in islice(problems.values(), ORACLES_KEPT[Device.CUDA]):
            if not self._builds.under_way(work[0][1]):
                return
            try:
                plan.make(self.resources.oracle(problem, Device.CUDA), variant=self._variant, quick=self._quick)
            except Exception:  # it happens again, and is told, when a submission for this problem is graded
                self.resources.drop_oracle(problem, Device.CUDA)

    def _examine(
        self,
        problem: Problem,
        submission: Submission,
        candidate: Candidate,
        record: Record,
        memory: PeakMemory | None = None,
    ) -> None:
        """Forward, backward and time, each only when the one before passed."""
        with record.stage("start"):
            oracle = self.resources.oracle(problem, candidate.device)
            apart = plan.may_tell_modes_apart(submission)
            todo = plan.make(oracle, variant=self._variant, quick=self._quick, tells_modes_apart=apart)
        record.diagnoses += todo.notes
        with record.stage("forward"):
            forward = judge_forward(candidate, oracle, todo.cases, todo.probed)
        record.forward = forward.result
        record.diagnoses += forward.diagnoses
        if forward.result.status is StageStatus.FAILED:
            return
        if todo.traps:
            with record.stage("backward"):
                backward = judge_backward(candidate, oracle, todo.differentiated, todo.traps)
            record.backward = backward.result
            if memory is not None:
                peak = {"peak_device_bytes": memory.peak_bytes}
                record.backward = record.backward.model_copy(update=peak)
            record.diagnoses += backward.diagnoses
        else:
            record.backward = BackwardResult(status=StageStatus.SKIPPED)
        if record.status in (Status.CORRECT, Status.MISSING_BACKWARD):
            with record.stage("timing"):
                self.resources.align(oracle, candidate, todo.timed, todo.rounds)
                timing = judge_timing(
                    candidate,
                    oracle,
                    todo.timed,
                    todo.rounds,
                    training=record.status is Status.CORRECT,
                    tf32=not self._strict_fp32,
                    quiet=lambda: self.resources.launcher.quiet(candidate.device),
                )
            record.timing, record.timed = timing.result, todo.timed
            if timing.result.status is StageStatus.FAILED:
                record.fail_timing(timing.diagnoses)
                oracle.release()
                return
            record.diagnoses += timing.diagnoses
            with record.stage("inspection"), _meanwhile(oracle.release):
                self._inspect(candidate, oracle, todo.cases[0], record)

    def _inspect(self, candidate: Candidate, oracle: Oracle, case: Case, record: Record) -> None:
        """Which kernels ran, and do they stay within their tensors? A failure of the look itself changes nothing."""
        differentiated = record.backward is not None and record.backward.status is StageStatus.PASSED
        if candidate.device is Device.CPU or not self._quick:  # a GPU's profiler takes seconds to come up
            record.inspected = inspection.profile(candidate, oracle, case, backward=differentiated)
        for backward in (False, True) if differentiated else (False,):
            fault = inspection.judge_bounds(candidate, case, backward=backward)
            if fault is not None:
                record.diagnoses.insert(0, fault)
                record.timing = None
                record.fail_later([fault])
                return


@contextmanager
def _meanwhile(action: Callable[[], None]) -> Iterator[None]:
    """Done when the body is; of a worker that the body does not ask."""
    with ThreadPoolExecutor(1) as thread:
        done = thread.submit(action)
        yield
        done.result()


def _suited(submission: Submission) -> Device:
    wanted = needs(submission.source)
    if wanted == "any":
        return Device.CUDA if torch.cuda.is_available() else Device.CPU
    return Device(wanted)
