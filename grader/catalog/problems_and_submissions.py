"""Finds problems and submissions, and reads them by `ast` alone: nothing found here is ever imported by this module."""

from __future__ import annotations

import ast
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.catalog.shipped import shipped
from grader.errors import UserError
from grader.verdict.models import Problem, Submission

MAX_SOURCE_BYTES = 1 << 20

_KERNELBENCH_SAMPLE = re.compile(r"level_(?P<level>\d+)_problem_(?P<problem>\d+)_sample_(?P<sample>\d+)(_kernel)?")
"""How KernelBench names the files of a run, whose folder is the run's name."""
_LEVEL = re.compile(r"level\d+")
"""How KernelBench names the folder of a level."""


@dataclass(frozen=True)
class Skipped:
    """A file in a problem folder that is not offered as a problem."""

    path: Path
    reason: str


@dataclass(frozen=True)
class Catalog:
    """The problems that submissions may name."""

    problems: Mapping[str, Problem]
    """By id: the file's stem, `level1/23_Name` where several of KernelBench's levels have that stem."""
    skipped: tuple[Skipped, ...] = ()

    def problem(self, problem_id: str) -> Problem:
        """The problem of that id. Raises UserError naming the nearest known ids."""
        try:
            return self.problems[problem_id]
        except KeyError:
            raise UserError(f"unknown problem {problem_id!r}; {self._nearest(problem_id)}") from None

    def numbered(self, level: str, number: str) -> Problem:
        """KernelBench's problem of that number: in `level{level}/`, the stem begins with `{number}_`.

        Raises UserError where there is none, or more than one.
        """
        found = [
            problem
            for problem in self.problems.values()
            if problem.path.parent.name == f"level{level}" and problem.path.stem.partition("_")[0] == number
        ]
        if not found:
            raise UserError(
                f"no problem {number} of level {level} is known; name a KernelBench checkout: --problems DIR"
            )
        if len(found) > 1:
            names = " and ".join(problem.path.name for problem in found)
            raise UserError(
                f"problem {number} of level {level} may be {names}; take one away, or name it: --problem ID"
            )
        return found[0]

    def _nearest(self, problem_id: str) -> str:
        near = difflib.get_close_matches(problem_id, self.problems, n=3, cutoff=0.4)
        if near:
            return f"did you mean {' or '.join(near)}?"
        return "`grader problems` lists the known ones, --problems DIR adds a folder of them"


def find_problems(folders: Iterable[Path] = ()) -> Catalog:
    """The shipped problems and those in the folders, searched recursively; a later folder's replaces an earlier's.

    A folder may be a KernelBench checkout, its `KernelBench/` or one of its levels.
    """
    problems: dict[str, Problem] = {}
    skipped: list[Skipped] = []
    for folder in [shipped("problems"), *folders]:
        found = _problems_under(folder)
        problems.update(found.problems)
        skipped.extend(found.skipped)
    return Catalog(problems=_shortened(problems), skipped=tuple(skipped))


def find_submissions(
    paths: Iterable[Path], catalog: Catalog, *, problem_id: str | None = None, author: str | None = None
) -> tuple[Submission, ...]:
    """The submissions in the files and, recursively, the folders. Raises UserError for what cannot be one.

    `problem_id` and `author` override what the files' names and folders say.
    """
    if problem_id is not None:
        catalog.problem(problem_id)
    found = {path.resolve(): _submission(path, catalog, problem_id) for path in _submission_files(paths, catalog)}
    if author is not None:
        found = {path: submission.model_copy(update={"author": author}) for path, submission in found.items()}
    return tuple(found.values())


def kernelbench_samples(run: Path) -> list[Path]:
    """The kernels of a KernelBench run, by level, problem and sample. Raises UserError where there are none."""
    if not _existing(run).is_dir():
        raise UserError(f"{run}: a file; a KernelBench run is a folder of level_L_problem_P_sample_S_kernel.py")
    names = {path: _KERNELBENCH_SAMPLE.fullmatch(path.stem) for path in run.glob("*.py")}
    found = {path: tuple(map(int, name.group("level", "problem", "sample"))) for path, name in names.items() if name}
    if not found:
        raise UserError(f"{run}: no level_L_problem_P_sample_S_kernel.py in it; give the folder of one KernelBench run")
    return sorted(found, key=found.__getitem__)


# ---------------------------------------------------------------------------------------------------- problems


def _problems_under(folder: Path) -> Catalog:
    files = [folder] if folder.is_file() else _python_files(_problem_root(_existing(folder)))
    problems: dict[str, Problem] = {}
    skipped: list[Skipped] = []
    for path in files:
        source, reason = _read(path)
        reason = reason or _why_no_problem(source)
        name = _with_level(path.resolve())
        if reason is None and name in problems:
            reason = f"{problems[name].path} already has the id {name}; rename one of them"
        if reason is None:
            problems[name] = Problem(id=name, path=path.resolve(), source=source)
        else:
            skipped.append(Skipped(path, reason))
    if not problems:
        first = f" (the first of {len(skipped)} files: {skipped[0].path}: {skipped[0].reason})" if skipped else ""
        raise UserError(f"{folder}: no problem in it{first}; a problem is a .py file with class Model and get_inputs()")
    return Catalog(problems, tuple(skipped))


def _problem_root(folder: Path) -> Path:
    """Of a KernelBench checkout the folder with the levels: its prompts and tests hold classes named Model, too."""
    levels = folder / "KernelBench"
    has_levels = levels.is_dir() and any(_LEVEL.fullmatch(path.name) for path in levels.iterdir())
    return levels if has_levels else folder


def _with_level(path: Path) -> str:
    return f"{path.parent.name}/{path.stem}" if _LEVEL.fullmatch(path.parent.name) else path.stem


def _shortened(problems: Mapping[str, Problem]) -> dict[str, Problem]:
    """By stem alone wherever only one problem has it."""
    counts = Counter(problem.path.stem for problem in problems.values())
    short = {
        name: problem if counts[problem.path.stem] > 1 else problem.model_copy(update={"id": problem.path.stem})
        for name, problem in problems.items()
    }
    return {problem.id: problem for problem in short.values()}


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
    if _KERNELBENCH_SAMPLE.fullmatch(path.stem):
        return True
    problem = catalog.problems.get(_named_problem(path, catalog))
    return path.resolve() != problem.path if problem else "ModelNew" in _read(path)[0]


def _submission(path: Path, catalog: Catalog, problem_id: str | None) -> Submission:
    try:
        problem = catalog.problem(problem_id or _named_problem(path, catalog))
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    source, unreadable = _read(path)
    sample = _KERNELBENCH_SAMPLE.fullmatch(path.stem)
    folder = path.resolve().parent
    return Submission(
        author=(folder.parent if problem.id == f"{folder.name}/{problem.path.stem}" else folder).name or "unknown",
        label=None if sample else _label(path, problem.path.stem),
        sample=int(sample["sample"]) if sample else None,
        problem_id=problem.id,
        path=str(path),
        source=source,
        unreadable=unreadable,
    )


def _named_problem(path: Path, catalog: Catalog) -> str:
    """The problem id in a file's name, known or not. Raises UserError for a number that KernelBench does not have."""
    sample = _KERNELBENCH_SAMPLE.fullmatch(path.stem)
    if sample:
        return catalog.numbered(sample["level"], sample["problem"]).id
    stem = path.stem.partition("__")[0]
    in_level = f"{path.resolve().parent.name}/{stem}"
    return in_level if in_level in catalog.problems else stem


def _label(path: Path, problem_stem: str) -> str | None:
    """What tells this file from others for its problem: what follows `__`, or the whole stem if that names another."""
    before, _, after = path.stem.partition("__")
    return (after or None) if before == problem_stem else path.stem


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
