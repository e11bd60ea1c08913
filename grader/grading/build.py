"""Does it build? Imports the submission in a worker, which compiles its extensions, and keeps what was built."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grader import protocol as p
from grader.catalog.formats import Entry, format_named
from grader.errors import UserError
from grader.executor import WorkerClient, WorkerLost
from grader.grading.candidate import first_compiler_error
from grader.grading.outcome import Stopped, diagnose, lost
from grader.verdict.models import Status, Submission
from grader.verdict.stages import BuildResult, StageStatus
from grader.verdict.value import digest

LOG_TAIL_CHARACTERS = 16 << 10
MAX_BUNDLE_BYTES = 512 << 20


class BuildCache:
    """Extensions by submission and toolchain.

    A key holds only what that very source produced, so a submission can poison nothing but itself. Files are read-only,
    appear whole (written aside, then renamed), and are opaque to the referee: it never looks inside.
    """

    def __init__(self, folder: Path, toolchain_hash: str) -> None:
        """Raises UserError for a folder that cannot be written."""
        self._folder, self._toolchain_hash = folder, toolchain_hash
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            message = f"{folder}: builds cannot be kept there ({error.strerror})"
            raise UserError(f"{message}; set XDG_CACHE_HOME to a folder that can be written") from error

    def get(self, submission: Submission) -> Path | None:
        path = self._path(submission)
        return path if path.exists() else None

    def put(self, submission: Submission, content: bytes) -> Path:
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as file:
            file.write(content)
        Path(file.name).chmod(0o400)
        Path(file.name).replace(self._path(submission))
        return self._path(submission)

    def _path(self, submission: Submission) -> Path:
        return self._folder / (digest(f"{submission.source_hash}\n{self._toolchain_hash}") + ".tar")


@dataclass(frozen=True)
class Built:
    """`import_failure`: the file raised, and not because of a compiler; whether that matters is for the run to say."""

    result: BuildResult
    import_failure: p.Failure | None = None


def check_source(submission: Submission) -> None:
    """What can be told without running anything. Raises Stopped."""
    if submission.unreadable is not None:
        raise Stopped(Status.INVALID_SUBMISSION, diagnose("unreadable", submission.unreadable))
    try:
        tree = ast.parse(submission.source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        where = f" at line {line}" if line else ""
        text = getattr(error, "msg", None) or str(error)
        raise Stopped(
            Status.INVALID_SUBMISSION, diagnose("syntax_error", f"the file is not valid Python: {text}{where}")
        ) from None
    entry = format_named(submission.format).entry
    if not any(_binds(node, entry) for node in ast.walk(tree)):
        raise Stopped(Status.INVALID_SUBMISSION, diagnose("no_model_new", f"the file defines no {entry}"))


def import_submission(
    worker: WorkerClient, submission: Submission, cache: BuildCache, *, keep: bool, timeout_seconds: float
) -> Built:
    """Import in this worker, from the cache where it has the extensions; `keep` puts new ones there. Raises Stopped."""
    cached = cache.get(submission)
    step = p.Import(
        source=format_named(submission.format).worker_source(submission.source),
        file_name=f"{submission.problem_id}.py",
        class_name="ModelNew",
        use_bundle=cached is not None,
        give_bundle=keep and cached is None,
    )
    descriptors = []
    if cached is not None:
        descriptors.append(os.open(cached, os.O_RDONLY | os.O_CLOEXEC))
    if step.give_bundle:
        descriptors.append(os.memfd_create("bundle", os.MFD_CLOEXEC))
    try:
        evidence = worker.run([step], timeout_seconds, descriptors)
        if evidence.failure is None and step.give_bundle:
            imported = evidence.results[0]
            assert isinstance(imported, p.Imported)
            _keep(cache, submission, descriptors[-1], imported.bundle_bytes)
    except WorkerLost as error:
        stopped = lost(error, "build", "importing the file")
        if error.status is Status.TIMEOUT:
            message = f"the file was not imported and compiled within {timeout_seconds:.0f} s"
            stopped = Stopped(Status.TIMEOUT, diagnose("build_timeout", message, detail=stopped.diagnosis.detail))
        raise stopped from error
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    return _judge(evidence)


def _keep(cache: BuildCache, submission: Submission, descriptor: int, nbytes: int) -> None:
    size = min(os.fstat(descriptor).st_size, nbytes, MAX_BUNDLE_BYTES)
    if size:
        cache.put(submission, os.pread(descriptor, size, 0))


def _judge(evidence: p.Evidence) -> Built:
    failure = evidence.failure
    if failure is None:
        imported = evidence.results[0]
        assert isinstance(imported, p.Imported)
        return Built(_result(imported.builds, StageStatus.PASSED, imported.seconds))
    if failure.kind == "build":
        log = failure.builds[-1].log or failure.text
        result = _result(failure.builds, StageStatus.FAILED, sum(event.seconds for event in failure.builds))
        message = f"building extension `{failure.builds[-1].name}` failed: {first_compiler_error(log)}"
        raise BuildFailed(result, diagnose("compile_error", message))
    if failure.kind == "missing_class":
        raise Stopped(Status.INVALID_SUBMISSION, diagnose("no_model_new", "the file defines no class ModelNew"))
    return Built(_result(failure.builds, StageStatus.PASSED, None), import_failure=failure)


class BuildFailed(Stopped):
    """Carries the build's result with its log beside the diagnosis."""

    def __init__(self, result: BuildResult, diagnosis: object) -> None:
        super().__init__(Status.BUILD_ERROR, diagnosis)  # type: ignore[arg-type]
        self.result = result


def _result(builds: Sequence[p.BuildEvent], status: StageStatus, seconds: float | None) -> BuildResult:
    log = "\n".join(event.log for event in builds if event.log)
    return BuildResult(
        status=status,
        seconds=seconds,
        cached=bool(builds) and all(event.cached for event in builds),
        log_tail=log[-LOG_TAIL_CHARACTERS:],
        extensions=tuple(event.name for event in builds),
    )


def _binds(node: ast.AST, entry: Entry) -> bool:
    """Whether a node may define what is graded; a string with its name may do so by exec or setattr."""
    match node:
        case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
            return name == entry.name
        case ast.FunctionDef(name=name):
            return name == entry.name and entry.kind == "function"
        case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
            return any((alias.asname or alias.name) == entry.name for alias in aliases)
        case ast.Constant(value=str(text)):
            return entry.name in text
    return False
