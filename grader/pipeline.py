"""Grades one submission after another. In verbs: check, build, compare the forward, the backward, time, judge."""

from __future__ import annotations

import itertools
import os
import platform
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Literal

import torch

from grader import __version__
from grader.device_memory import PeakMemory, used_bytes
from grader.errors import ProblemError, UserError
from grader.labels import labels
from grader.models import (
    BackwardResult,
    Baseline,
    BuildResult,
    Device,
    Diagnosis,
    Environment,
    ForwardResult,
    Problem,
    Settings,
    StageSeconds,
    StageStatus,
    Status,
    Submission,
    TimeLimits,
    TimingResult,
    Verdict,
)
from grader.needs import needs
from grader.protocol import Failure
from grader.remote.launch import Launcher, Role
from grader.sandbox import choose
from grader.stages import build, inspection, plan
from grader.stages.backward import judge_backward
from grader.stages.backward.judge import judge_products
from grader.stages.candidate import Candidate
from grader.stages.cases import Case
from grader.stages.following import run_probes
from grader.stages.forward import judge_forward
from grader.stages.outcome import Stopped, diagnose, raised
from grader.stages.reference import ReferenceDesk
from grader.stages.timing import (
    BaselineStore,
    SpeedOfLight,
    TimingJudgement,
    flush_bytes,
    judge_timing,
    measure,
    too_fast,
)
from grader.toolchain import find_toolchain

DeviceChoice = Literal["auto", "cpu", "cuda"]
SandboxChoice = Literal["auto", "bubblewrap", "weak"]
MAX_CPU_THREADS = 8
DESKS_KEPT = {Device.CPU: 6, Device.CUDA: 2}
"""References that stay warm; each holds a process, and its cases hold memory."""


@dataclass
class Record:
    """What is known so far about one submission."""

    build: BuildResult | None = None
    forward: ForwardResult | None = None
    backward: BackwardResult | None = None
    timing: TimingResult | None = None
    timed: Case | None = None
    diagnoses: list[Diagnosis] = field(default_factory=list)
    seconds: StageSeconds = field(default_factory=StageSeconds)
    peak_device_bytes: int | None = None
    inspected: inspection.Inspected = field(default_factory=inspection.Inspected)


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
        self._strict_fp32 = strict_fp32
        self._sandbox = choose(sandbox)
        self._toolchain = find_toolchain()
        self._threads = min(MAX_CPU_THREADS, len(os.sched_getaffinity(0)))
        torch.set_num_threads(self._threads)
        self._baseline_bytes = used_bytes() if torch.cuda.is_available() else 0
        self._launcher = Launcher(
            self._sandbox, self._toolchain, thread_count=self._threads, architecture=_architecture()
        )
        self._cache = build.BuildCache(build_cache or default_build_cache(), self._toolchain.hash)
        self._desks: dict[tuple[str, Device], ReferenceDesk] = {}
        self._limits = limits or TimeLimits()
        self._builds: dict[str, Future[build.Built]] = {}
        self._light = SpeedOfLight()
        self._baselines = BaselineStore(build_cache or default_build_cache())
        self._wants_baselines = baselines
        self._builders = max(1, len(os.sched_getaffinity(0)) // 2)

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for desk in self._desks.values():
            desk.worker.close()
        self._desks.clear()
        self._launcher.close()

    def grade(self, problem: Problem, submission: Submission, *, more_to_come: bool = False) -> Verdict:
        """One verdict, whatever happens: our own failures are a verdict too.

        `more_to_come` starts the next submission's worker in the background.
        """
        record, settings = Record(), self.settings_for(submission)
        try:
            status = self._grade(problem, submission, settings.device, record, more_to_come)
            self._appraise(problem, settings.device, record)
        except Stopped as stopped:
            status = stopped.status
            record.diagnoses.insert(0, stopped.diagnosis)
            if isinstance(stopped, build.BuildFailed):
                record.build = stopped.result
        except ProblemError as error:
            status = Status.NOT_RUN
            record.diagnoses.insert(0, diagnose("problem_not_gradable", str(error)))
            self._drop_desk(problem, settings.device)
        except UserError:
            raise
        except Exception as error:
            status = Status.GRADER_ERROR
            detail = {"traceback": traceback.format_exc()}
            record.diagnoses.insert(0, diagnose("grader_failed", f"{type(error).__name__}: {error}", detail=detail))
            self._drop_desk(problem, settings.device)
        return self._verdict(problem, submission, settings, status, record)

    def grade_many(
        self, work: Iterable[tuple[Problem, Submission]]
    ) -> Generator[tuple[Problem, Submission, Verdict], None, None]:
        """Verdicts in the order of the work, each as it is reached; CUDA extensions are compiled ahead, in parallel."""
        pending, ahead = iter(work), deque[tuple[Problem, Submission]]()
        with ThreadPoolExecutor(self._builders) as pool:
            try:
                while True:
                    for item in islice(pending, self._builders + 1 - len(ahead)):
                        ahead.append(item)
                        self._build_ahead(pool, item[1])
                    if not ahead:
                        return
                    current = ahead.popleft()
                    yield *current, self.grade(*current, more_to_come=bool(ahead))
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                self._builds.clear()

    def judge_draws(
        self, problem: Problem, submission: Submission, variant: str, draws: int
    ) -> Iterator[tuple[Case, list[Diagnosis]]]:
        """What gradients and probes find wrong in many draws of a variant, in each mode: how false rejects are hunted.

        Raises Stopped where the submission does not import or run.
        """
        device = self.settings_for(submission).device
        desk = self._desk(problem, device)
        modes = (True, False) if desk.modes_differ(variant) else (True,)
        with self._launcher.take(Role.RUN, device) as worker:
            build.import_submission(worker, submission, self._cache, keep=False, timeout_seconds=self._limits.build)
            candidate = Candidate(worker, device, self._limits)
            for training, draw in itertools.product(modes, range(draws)):
                case = desk.case(variant, training=training, draw=draw)
                found = [*judge_products(candidate, case).diagnoses, *run_probes(candidate, desk, case)]
                bounds = [inspection.judge_bounds(candidate, case, backward=back) for back in (False, bool(case.wrt))]
                found += [diagnosis for diagnosis in bounds if diagnosis is not None]
                yield case, [diagnosis for diagnosis in found if diagnosis.severity == "error"]
        desk.forget(variant)

    def time_alone(self, problem: Problem, submission: Submission, device: Device) -> TimingJudgement:
        """Times alone, of a source that needs no judging, such as a reference against itself.

        Raises Stopped, ProblemError.
        """
        build.check_source(submission)
        desk = self._desk(problem, device)
        with self._launcher.take(Role.RUN, device) as worker:
            built = build.import_submission(
                worker, submission, self._cache, keep=False, timeout_seconds=self._limits.build
            )
            _require_import(built)
            case = desk.case(plan.variants(desk, self._variant)[-1])
            rounds = plan.rounds(quick=self._quick)
            candidate = Candidate(worker, device, self._limits)
            judged = judge_timing(candidate, desk, case, rounds, tf32=not self._strict_fp32)
        desk.release()
        return judged

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
        return self._environment(self.settings_for(submission).device)

    def _grade(
        self, problem: Problem, submission: Submission, device: Device, record: Record, more_to_come: bool
    ) -> Status:
        build.check_source(submission)
        if device is Device.CUDA:
            return self._grade_on_gpu(problem, submission, record, more_to_come)
        with self._stage(record, "start"):
            worker = self._launcher.take(Role.RUN, device, more_to_come=more_to_come)
        with worker:
            with self._stage(record, "build"):
                built = build.import_submission(
                    worker, submission, self._cache, keep=True, timeout_seconds=self._limits.build
                )
                record.build = built.result
            _require_import(built)
            return self._examine(problem, Candidate(worker, device, self._limits), record)

    def _grade_on_gpu(self, problem: Problem, submission: Submission, record: Record, more_to_come: bool) -> Status:
        """Compiles without GPU devices in sight, then runs in another sandbox that has them."""
        with self._stage(record, "build"):
            started = self._builds.pop(submission.source_hash, None)
            if started is not None:
                record.build = started.result().result
            elif self._cache.get(submission) is None or not torch.cuda.is_available():
                record.build = self._build_apart(submission).result
        if not torch.cuda.is_available():
            message = "it compiles; running it needs a CUDA device, and there is none here"
            record.diagnoses.append(diagnose("needs_cuda", message, severity="info"))
            return Status.NOT_RUN
        with self._stage(record, "start"):
            worker = self._launcher.take(Role.RUN, Device.CUDA, more_to_come=more_to_come)
        with worker, PeakMemory(self._baseline_bytes) as memory:
            try:
                with self._stage(record, "start"):
                    built = build.import_submission(
                        worker, submission, self._cache, keep=False, timeout_seconds=self._limits.build
                    )
                record.build = record.build or built.result
                _require_import(built)
                return self._examine(problem, Candidate(worker, Device.CUDA, self._limits), record, memory)
            finally:
                record.peak_device_bytes = memory.peak_bytes

    def _build_ahead(self, pool: ThreadPoolExecutor, submission: Submission) -> None:
        if not torch.cuda.is_available():
            return  # timing on the CPU wants the cores to itself
        on_gpu = self.settings_for(submission).device is Device.CUDA
        if on_gpu and submission.source_hash not in self._builds and self._cache.get(submission) is None:
            self._builds[submission.source_hash] = pool.submit(self._build_apart, submission)

    def _build_apart(self, submission: Submission) -> build.Built:
        """In a sandbox of its own that sees no GPU. Raises Stopped. Runs in any thread."""
        build.check_source(submission)
        with self._launcher.start(Role.BUILD, Device.CUDA) as worker:
            return build.import_submission(
                worker, submission, self._cache, keep=True, timeout_seconds=self._limits.build
            )

    def _examine(
        self, problem: Problem, candidate: Candidate, record: Record, memory: PeakMemory | None = None
    ) -> Status:
        """Forward, backward and time, each only when the one before passed."""
        with self._stage(record, "start"):
            desk = self._desk(problem, candidate.device)
            todo = plan.make(desk, variant=self._variant, quick=self._quick)
        with self._stage(record, "forward"):
            forward = judge_forward(candidate, desk, todo.cases)
        record.forward = forward.result
        record.diagnoses += forward.diagnoses
        if forward.result.status is StageStatus.FAILED:
            return Status.WRONG_OUTPUT
        status = Status.CORRECT
        if todo.traps is not None:
            with self._stage(record, "backward"):
                backward = judge_backward(candidate, desk, todo.cases, todo.traps)
            record.backward, status = backward.result, backward.status
            if memory is not None:
                peak = {"peak_device_bytes": memory.peak_bytes}
                record.backward = record.backward.model_copy(update=peak)
            record.diagnoses += backward.diagnoses
        else:
            record.backward = BackwardResult(status=StageStatus.SKIPPED)
        if status in (Status.CORRECT, Status.MISSING_BACKWARD):
            self._launcher.settle()
            with self._stage(record, "timing"):
                timing = judge_timing(
                    candidate,
                    desk,
                    todo.timed,
                    todo.rounds,
                    training=status is Status.CORRECT,
                    tf32=not self._strict_fp32,
                )
            record.timing, record.timed = timing.result, todo.timed
            record.diagnoses += timing.diagnoses
            desk.release()
            if timing.result.status is StageStatus.FAILED:
                return timing.status
            with self._stage(record, "inspection"):
                return self._inspect(candidate, desk, todo.cases[0], record, status)
        return status

    def _inspect(self, candidate: Candidate, desk: ReferenceDesk, case: Case, record: Record, status: Status) -> Status:
        """Which kernels ran, and do they stay within their tensors? A failure of the look itself changes nothing."""
        differentiated = record.backward is not None and record.backward.status is StageStatus.PASSED
        record.inspected = inspection.profile(candidate, desk, case, backward=differentiated)
        for backward in (False, True) if differentiated else (False,):
            found = inspection.judge_bounds(candidate, case, backward=backward)
            if found is None:
                continue
            record.diagnoses.insert(0, found)
            record.timing = None
            failed = {"status": StageStatus.FAILED}
            if backward:
                assert record.backward is not None
                record.backward = record.backward.model_copy(update=failed)
                return Status.WRONG_BACKWARD
            assert record.forward is not None
            record.forward = record.forward.model_copy(update=failed)
            return Status.WRONG_OUTPUT
        return status

    def _appraise(self, problem: Problem, device: Device, record: Record) -> None:
        """What the times are worth, when the candidate is gone and disturbs nothing; where that fails, no figure."""
        if record.timing is None or record.timed is None or record.timing.status is not StageStatus.PASSED:
            return
        with self._stage(record, "timing"):
            try:
                desk = self._desk(problem, device)
                work = desk.work(record.timed)
                record.timing = self._light.bounds(desk, work, record.timing, tf32=not self._strict_fp32)
                desk.release()
                if self._wants_baselines:
                    found = self._baselines_of(problem, desk, record.timed)
                    record.timing = record.timing.model_copy(update={"baselines": found})
            except (ProblemError, RuntimeError, OSError):  # torch raises RuntimeErrors, out of memory for one
                self._drop_desk(problem, device)
        record.diagnoses += too_fast(record.timing)

    def _baselines_of(self, problem: Problem, desk: ReferenceDesk, case: Case) -> tuple[Baseline, ...]:
        tf32, device = not self._strict_fp32, desk.device

        def now() -> tuple[Baseline, ...]:
            flush = flush_bytes(device)
            variant = desk.module.variants[case.variant]
            with self._launcher.start(Role.REFERENCE, device) as worker:
                return measure(worker, problem, variant, case, device, tf32=tf32, flush_bytes=flush)

        return self._baselines.get(problem, case, self._environment(device), tf32, now)

    def _desk(self, problem: Problem, device: Device) -> ReferenceDesk:
        key = (problem.source_hash, device)
        desk = self._desks.pop(key, None)
        if desk is None:
            worker = self._launcher.take(Role.REFERENCE, device)
            try:
                desk = ReferenceDesk(problem, device, worker)
            except BaseException:
                worker.close()
                raise
        for other in self._desks.values():
            other.release()
        self._desks[key] = desk
        while len(self._desks) > DESKS_KEPT[device]:
            self._desks.pop(next(iter(self._desks))).worker.close()
        return desk

    def _drop_desk(self, problem: Problem, device: Device) -> None:
        desk = self._desks.pop((problem.source_hash, device), None)
        if desk is not None:
            desk.worker.close()

    def _stage(self, record: Record, name: str) -> _Stopwatch:
        def book(seconds: float) -> None:
            total = getattr(record.seconds, name) + seconds
            record.seconds = record.seconds.model_copy(update={name: total})

        return _Stopwatch(book)

    def _verdict(
        self, problem: Problem, submission: Submission, settings: Settings, status: Status, record: Record
    ) -> Verdict:
        return Verdict(
            submission=submission.name,
            author=submission.author,
            label=submission.label,
            sample=submission.sample,
            problem=problem.id,
            device=settings.device,
            status=status,
            diagnoses=tuple(record.diagnoses),
            labels=labels(submission.source, problem.source, record.inspected.seen),
            kernels=record.inspected.kernels,
            build=record.build,
            forward=record.forward,
            backward=record.backward,
            timing=record.timing,
            seconds=record.seconds,
            peak_device_bytes=record.peak_device_bytes,
            environment=self._environment(settings.device),
            settings=settings,
            source_hash=submission.source_hash,
            problem_hash=problem.source_hash,
            created_at=datetime.now(UTC),
        )

    def _environment(self, device: Device) -> Environment:
        on_gpu = device is Device.CUDA and torch.cuda.is_available()
        return Environment(
            device=device,
            device_name=torch.cuda.get_device_name() if on_gpu else "none" if device is Device.CUDA else _cpu_name(),
            torch_version=torch.__version__,
            cuda_version=self._toolchain.nvcc_version,
            driver_version=_driver_version() if on_gpu else None,
            compiler=self._toolchain.cxx_version or "none",
            python_version=platform.python_version(),
            grader_version=__version__,
            sandbox=self._sandbox.name,
            sandbox_layers=self._sandbox.layers,
            thread_count=self._threads,
        )


class _Stopwatch:
    def __init__(self, book: Callable[[float], None]) -> None:
        self._book = book

    def __enter__(self) -> None:
        self._started = time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._book(time.monotonic() - self._started)


def default_build_cache() -> Path:
    """`$XDG_CACHE_HOME/grader/builds`, or under ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "grader" / "builds"


def _require_import(built: build.Built) -> None:
    """Raises Stopped for a file that could not be imported where it is to run."""
    if built.import_failure is None:
        return
    failure: Failure = built.import_failure
    stopped = raised(failure, "load", "importing the file")
    if stopped.diagnosis.code == "raised":
        diagnosis = diagnose("import_raised", stopped.diagnosis.message, detail=stopped.diagnosis.detail)
        stopped = Stopped(stopped.status, diagnosis)
    raise stopped


def _suited(submission: Submission) -> Device:
    wanted = needs(submission.source)
    if wanted == "any":
        return Device.CUDA if torch.cuda.is_available() else Device.CPU
    return Device(wanted)


def _architecture() -> str | None:
    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability()
    return f"{major}.{minor}"


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _driver_version() -> str | None:
    import pynvml

    try:
        pynvml.nvmlInit()
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
