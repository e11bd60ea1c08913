"""Imports a submission in a worker, which compiles its extensions, and caches what was built."""

from __future__ import annotations

import ast
import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from grader import protocol as p
from grader.catalog.formats import FORMATS, Entry
from grader.catalog.own_folders import cache_folder
from grader.catalog.requests import Request
from grader.errors import UserError, printable
from grader.executor import WorkerClient, WorkerLost
from grader.grading.kept_files import keep_file
from grader.grading.messages import MAX_QUOTED, diagnose, first_line, usual_remedy
from grader.grading.stopped import LOG_TAIL_CHARACTERS, Kill, Stopped, killed_child, lost, raised
from grader.machine.backends import backend
from grader.verdict.models import Diagnosis, Problem, Status, Submission
from grader.verdict.precision import Precision
from grader.verdict.python_source import TooMuchCode, parse
from grader.verdict.stages import BuildResult, StageStatus
from grader.verdict.value import digest

MAX_BUNDLE_BYTES = 512 << 20
"""Bytes of one submission's extensions in the cache, ten times what large ones take. Larger ones are not cached."""


class BuildCache:
    """Compiled extensions and just-in-time kernels, by source, role and toolchain.

    A key holds only what that source produced, so a submission can poison only itself. Files are read-only, appear
    whole (written aside, then renamed), and are opaque to the referee, which never reads them.
    """

    def __init__(self, folder: Path | None, toolchain_hash: str) -> None:
        """Without a folder, the user's cache. Raises UserError for one that cannot be written."""
        self.folder = folder = folder or cache_folder("builds")
        self._toolchain_hash = toolchain_hash
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            message = f"{folder}: builds cannot be kept there ({error.strerror})"
            raise UserError(f"{message}; name another folder with --build-cache or XDG_CACHE_HOME") from error

    def get(self, source: Submission | Problem) -> Path | None:
        """The file of what the source compiled, if there is one."""
        path = self._path(source)
        return path if path.exists() else None

    def put(self, source: Submission | Problem, content: bytes) -> None:
        """Keep what it compiled, if the disk takes it."""
        keep_file(self._path(source), content)

    def _path(self, source: Submission | Problem) -> Path:
        role = "\nreference" if isinstance(source, Problem) else ""
        return self.folder / (digest(f"{source.source_hash}\n{self._toolchain_hash}{role}") + ".tar")


@dataclass(frozen=True)
class Built:
    """The result of a build."""

    result: BuildResult
    import_failure: p.Failure | None = None
    """The file raised, but not because of a compiler. A build without a GPU ignores that; a run does not."""


def check_source(submission: Submission) -> None:
    """Check what is visible without running anything. Raises Stopped."""
    if submission.unreadable is not None:
        raise Stopped(diagnose("unreadable", submission.unreadable, remedy=usual_remedy("unreadable")))
    try:
        tree = parse(submission.source)
    except TooMuchCode:
        tree = None  # the worker's import says what is wrong with it
    except SyntaxError as error:
        what, where = f"the file is not valid Python: {error.msg}", f"line {error.lineno}" if error.lineno else None
        raise Stopped(diagnose("syntax_error", what, where=where, remedy="fix the syntax error")) from None
    entry = FORMATS[submission.format].entry
    bound = entry.name in submission.source if tree is None else any(_binds(node, entry) for node in ast.walk(tree))
    if not bound:
        top = () if tree is None else tree.body
        functions = (node.lineno for node in top if isinstance(node, ast.FunctionDef) and node.name == entry.name)
        line = next(functions, None) if entry.kind == "class" else None
        raise _no_model_new(entry, "" if line is None else f"{entry.name} is a function (line {line}), no class")


def import_submission(
    worker: WorkerClient,
    submission: Submission,
    cache: BuildCache,
    *,
    keep: bool,
    timeout_seconds: float,
    precision: Precision = Precision.FP32,
    ahead: Sequence[p.CompileAhead] | None = None,
) -> Built:
    """Import in this worker, with extensions from the cache; `keep` stores new ones. Raises Stopped.

    `ahead` is given where there is no GPU: steps that compile what a run would.
    """
    cached = cache.get(submission)
    step = p.Import(
        source=FORMATS[submission.format].worker_source(submission.source),
        file_name=f"{submission.problem_id}.py",
        class_name="ModelNew",
        dtype=precision.meaning.dtype,
        tf32=precision.meaning.tf32,
        use_bundle=cached is not None,
        give_bundle=keep and cached is None,
        no_gpu=ahead is not None,
    )
    with bundles(kept=cached, gives=step.give_bundle) as descriptors:
        try:
            evidence = worker.run([step, *(ahead or ())], timeout_seconds, descriptors)
        except WorkerLost as error:
            raise _lost(error, timeout_seconds) from error
        if evidence.results and step.give_bundle:
            imported = evidence.results[0]
            assert isinstance(imported, p.Imported)
            _keep(cache, submission, descriptors[-1], imported.bundle_bytes)
    return _judge_import(submission, evidence)


def require_import(built: Built) -> None:
    """Raises Stopped for a file that could not be imported where it is to run."""
    if built.import_failure is None:
        return
    raise raised(built.import_failure, "load", "importing the file", usual_code="import_raised")


def require_precision(request: Request) -> None:
    """Raises Stopped for a precision that the device does not have."""
    if request.precision.meaning.tf32 and not backend(request.device).tf32:
        what = f"TensorFloat-32 is a format of GPUs, and this was to be graded on {request.device.value}"
        raise Stopped(diagnose("needs_cuda", what, remedy="grade it with --precision fp32, or on a GPU"))


@contextmanager
def bundles(*, kept: Path | None = None, gives: bool = False) -> Iterator[list[int]]:
    """Descriptors for a worker: one to read what was kept, then one for what it `gives`."""
    descriptors = [] if kept is None else [os.open(kept, os.O_RDONLY | os.O_CLOEXEC)]
    if gives:
        descriptors.append(os.memfd_create("bundle", os.MFD_CLOEXEC))
    try:
        yield descriptors
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _lost(error: WorkerLost, timeout_seconds: float) -> Stopped:
    """The end of a submission whose worker was lost while it imported the file."""
    stopped = lost(error, "build", "importing the file")
    if error.status is not Status.TIMEOUT or error.killer is not None:
        return stopped
    what, remedy = (
        f"the file was not imported and compiled within {timeout_seconds:.0f} s",
        usual_remedy("build_timeout"),
    )
    return Stopped(diagnose("build_timeout", what, remedy=remedy, detail=stopped.diagnosis.detail))


def keep_kernels(
    worker: WorkerClient,
    source: Submission | Problem,
    cache: BuildCache,
    timeout_seconds: float,
    *,
    end_compilers: bool = False,
) -> int | None:
    """Keep what just-in-time compilers left; the number of new files, None if there is no answer."""
    with bundles(gives=True) as descriptors, suppress(WorkerLost):
        evidence = worker.run([p.Keep(end_compilers=end_compilers)], timeout_seconds, descriptors)
        if evidence.failure is None:
            kept = evidence.results[0]
            assert isinstance(kept, p.Kept)
            _keep(cache, source, descriptors[0], kept.bundle_bytes)
            return kept.added
    return None


def _keep(cache: BuildCache, source: Submission | Problem, descriptor: int, nbytes: int) -> None:
    size = min(os.fstat(descriptor).st_size, nbytes)
    if 0 < size <= MAX_BUNDLE_BYTES:
        cache.put(source, os.pread(descriptor, size, 0))


def _judge_import(submission: Submission, evidence: p.Evidence) -> Built:
    failure = evidence.failure
    if failure is None:
        imported = evidence.results[0]
        assert isinstance(imported, p.Imported)
        result = _result(imported.builds, StageStatus.PASSED, imported.seconds)
        for compiled in evidence.results[1:]:
            assert isinstance(compiled, p.CompiledAhead)
            kernels = tuple(dict.fromkeys(event.name for event in compiled.builds if event.ok))
            result = result.model_copy(update={"kernels": kernels, "not_compiled": compiled.note})
        return Built(result)
    if failure.kind == "build":
        result = _result(failure.builds, StageStatus.FAILED, sum(event.seconds for event in failure.builds))
        last = failure.builds[-1]
        kill = killed_child(last.log or failure.text, "compiling")
        raise BuildFailed(result, build_failed(last, failure.text), kill)
    if failure.kind == "missing_class":
        raise _no_model_new(FORMATS[submission.format].entry, printable(failure.text[:MAX_QUOTED]))
    result = _result(failure.builds, StageStatus.PASSED, None)
    result = result.model_copy(update={"not_compiled": f"importing it raises {first_line(failure)}"})
    return Built(result, import_failure=failure)


class BuildFailed(Stopped):
    """A build failed; carries its result, with the log, beside the diagnosis."""

    def __init__(self, result: BuildResult, diagnosis: Diagnosis, kill: Kill | None) -> None:
        super().__init__(diagnosis, kill)
        self.result = result


def _no_model_new(entry: Entry, instead: str = "") -> Stopped:
    """The end for a file without what is graded; `instead` says what a name of a class stands for."""
    what = instead if instead and entry.kind == "class" else f"the file defines no {entry}"
    remedy = usual_remedy("no_model_new") if entry.kind == "class" else f"define {entry}"
    return Stopped(diagnose("no_model_new", what, remedy=remedy))


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


def build_failed(event: p.BuildEvent, text: str = "") -> Diagnosis:
    """`compile_error` for a build that failed; `text` if it left no log."""
    return diagnose(
        "compile_error",
        f"building extension `{event.name}` failed: {first_compiler_error(event.log or text)}",
        remedy="correct that line; the build log has the rest",
    )


def construction_failed(failure: p.Failure, doing: str) -> Stopped:
    """Why ModelNew was not constructed: a build in its constructor, its arguments, or what it raised."""
    if failure.kind == "build":
        diagnosis, log = build_failed(failure.builds[-1]), failure.builds[-1].log
        detailed = diagnosis.model_copy(update={"detail": {"log": log[-LOG_TAIL_CHARACTERS:]}})
        return Stopped(detailed, killed_child(log, doing))
    if failure.type_name == "TypeError" and "__init__()" in failure.text:
        what = f"ModelNew does not take the problem's constructor arguments: {first_line(failure)}"
        return Stopped(diagnose("constructor_signature", what, remedy=usual_remedy("constructor_signature")))
    return raised(failure, "load", doing, usual_code="constructor_raised")


def first_compiler_error(log: str) -> str:
    """The line of a build log that an author must look at first."""
    markers = (" error:", "error:", "fatal error", "undefined reference", "error   :", "Error:", " error ")
    for line in log.splitlines():
        if any(marker in line for marker in markers) and not line.startswith(("FAILED", "ninja:")):
            return line.strip()[:MAX_QUOTED]
    lines = [line for line in log.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:MAX_QUOTED] if lines else "the compiler printed nothing"
