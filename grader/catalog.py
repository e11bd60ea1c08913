"""Finds problems and submissions, and reads them by `ast` alone: nothing found here is ever imported by this module."""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import UserError
from grader.models import Problem, Submission
from grader.needs import Needs, needs
from grader.shipped import shipped

__all__ = ["Catalog", "Needs", "Skipped", "find_problems", "find_submissions", "needs"]

MAX_SOURCE_BYTES = 1 << 20

_KERNELBENCH_SAMPLE = re.compile(r"level_(?P<level>\d+)_problem_(?P<problem>\d+)_sample_(?P<sample>\d+)(_kernel)?")
"""How KernelBench names the files of a run, whose folder is the run's name."""


@dataclass(frozen=True)
class Skipped:
    """A file in a problem folder that is not offered as a problem."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Catalog:
    """The problems that submissions may name."""

    problems: Mapping[str, Problem]
    """By id, the file's stem."""
    skipped: tuple[Skipped, ...] = ()

    def problem(self, problem_id: str) -> Problem:
        """The problem of that id. Raises UserError naming the nearest known ids."""
        try:
            return self.problems[problem_id]
        except KeyError:
            raise UserError(f"unknown problem {problem_id!r}; {self._nearest(problem_id)}") from None

    def _nearest(self, problem_id: str) -> str:
        near = difflib.get_close_matches(problem_id, self.problems, n=3, cutoff=0.4)
        if near:
            return f"did you mean {' or '.join(near)}?"
        return "`grader problems` lists the known ones, --problems DIR adds a folder of them"


def find_problems(folders: Iterable[Path] = ()) -> Catalog:
    """The shipped problems and those in the folders, searched recursively; a later folder's replaces an earlier's."""
    problems: dict[str, Problem] = {}
    skipped: list[Skipped] = []
    for folder in [shipped("problems"), *folders]:
        found = _problems_under(folder)
        problems.update(found.problems)
        skipped.extend(found.skipped)
    return Catalog(problems=problems, skipped=tuple(skipped))


def find_submissions(
    paths: Iterable[Path], catalog: Catalog, *, problem_id: str | None = None
) -> tuple[Submission, ...]:
    """The submissions in the files and, recursively, the folders. Raises UserError for what cannot be one."""
    if problem_id is not None:
        catalog.problem(problem_id)
    found = {path.resolve(): _submission(path, catalog, problem_id) for path in _submission_files(paths, catalog)}
    return tuple(found.values())


# ---------------------------------------------------------------------------------------------------- problems


def _problems_under(folder: Path) -> Catalog:
    files = [folder] if folder.is_file() else _python_files(_existing(folder))
    problems: dict[str, Problem] = {}
    skipped: list[Skipped] = []
    for path in files:
        source, reason = _read(path)
        reason = reason or _why_no_problem(source)
        if reason is None and path.stem in problems:
            reason = f"{problems[path.stem].path} already has the id {path.stem}; rename one of them"
        if reason is None:
            problems[path.stem] = Problem(id=path.stem, path=path.resolve(), source=source)
        else:
            skipped.append(Skipped(path, reason))
    if not problems:
        first = f" (the first of {len(skipped)} files: {skipped[0].path}: {skipped[0].reason})" if skipped else ""
        raise UserError(f"{folder}: no problem in it{first}; a problem is a .py file with class Model and get_inputs()")
    return Catalog(problems, tuple(skipped))


def _why_no_problem(source: str) -> str | None:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return (
            f"it is no Python that parses: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        )
    names = set(_top_level_names(tree))
    missing = [text for name, text in (("Model", "class Model"), ("get_inputs", "get_inputs()")) if name not in names]
    return f"it has no {' and no '.join(missing)}" if missing else None


def _top_level_names(tree: ast.Module) -> Iterator[str]:
    for statement in tree.body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)


# ------------------------------------------------------------------------------------------------- submissions


def _submission_files(paths: Iterable[Path], catalog: Catalog) -> Iterator[Path]:
    for path in paths:
        if not _existing(path).is_dir():
            yield path
            continue
        files = [file for file in _python_files(path) if _looks_like_a_submission(file, catalog)]
        if not files:
            raise UserError(f"{path}: no submission in it; one is <author>/<problem_id>.py with a class ModelNew")
        yield from files


def _looks_like_a_submission(path: Path, catalog: Catalog) -> bool:
    """Problems and helper files beside submissions are passed over; a misspelt problem id is not."""
    problem = catalog.problems.get(_named_problem(path, catalog))
    return path.resolve() != problem.path if problem else "ModelNew" in _read(path)[0]


def _submission(path: Path, catalog: Catalog, problem_id: str | None) -> Submission:
    named = _named_problem(path, catalog)
    problem = problem_id or named
    if problem not in catalog.problems:
        try:
            catalog.problem(problem)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None
    source, unreadable = _read(path)
    sample = _KERNELBENCH_SAMPLE.fullmatch(path.stem)
    return Submission(
        author=path.resolve().parent.name or "unknown",
        label=None if sample else _label(path, problem),
        sample=int(sample["sample"]) if sample else None,
        problem_id=problem,
        path=str(path),
        source=source,
        unreadable=unreadable,
    )


def _named_problem(path: Path, catalog: Catalog) -> str:
    """The problem id in a file's name, known or not."""
    sample = _KERNELBENCH_SAMPLE.fullmatch(path.stem)
    if sample:
        for problem in catalog.problems.values():
            in_level = problem.path.parent.name == f"level{sample['level']}"
            if in_level and problem.id.split("_")[0] == sample["problem"]:
                return problem.id
    return path.stem.partition("__")[0]


def _label(path: Path, problem_id: str) -> str | None:
    """What tells this file from others for its problem: what follows `__`, or the whole stem if that names another."""
    before, _, after = path.stem.partition("__")
    return (after or None) if before == problem_id else path.stem


# ------------------------------------------------------------------------------------------------------- files


def _existing(path: Path) -> Path:
    if not path.exists():
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, beside, n=1)
        raise UserError(
            f"{path}: no such file or folder" + (f"; did you mean {path.parent / near[0]}?" if near else "")
        )
    if not (path.is_file() or path.is_dir()):
        raise UserError(f"{path}: neither a file nor a folder; give a .py file or a folder of them")
    return path


def _python_files(folder: Path) -> Sequence[Path]:
    files = (path for path in folder.rglob("*.py") if path.is_file() and path.name != "__init__.py")
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _read(path: Path) -> tuple[str, str | None]:
    """The text, or an empty one and the reason why there is none."""
    try:
        size = path.stat().st_size
        if size > MAX_SOURCE_BYTES:
            return "", f"The file has {size} bytes; at most {MAX_SOURCE_BYTES} are read."
        source = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        return "", f"The file is not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}."
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    return (source, None) if source.strip() else ("", "The file is empty.")
