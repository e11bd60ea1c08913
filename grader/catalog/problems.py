"""Finds problems in folders and offers them by id. Files are read, never imported."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.catalog.files import existing, is_text
from grader.catalog.formats import FORMATS, NotAProblem, ProblemFormat
from grader.catalog.own_folders import shipped
from grader.errors import UserError, printable
from grader.verdict.models import Problem


@dataclass(frozen=True)
class Refusal:
    """A file or folder that is not offered as a problem, or cannot be graded; the others still can."""

    path: Path
    reason: str
    """Reason and remedy, without the path."""

    def __str__(self) -> str:
        return f"{printable(self.path)}: {printable(self.reason)}"


@dataclass(frozen=True)
class Catalog:
    """The problems that submissions may name."""

    problems: Mapping[str, Problem]
    """By id: a name, or `group/name` where several problems have that name (KernelBench: `level1/23_Softmax`)."""
    skipped: tuple[Refusal, ...] = ()

    def problem(self, problem_id: str) -> Problem:
        """The problem with this id.

        Raises UserError that names a skipped file with this name, or the nearest known ids.
        """
        try:
            return self.problems[problem_id]
        except KeyError:
            raise UserError(self._unknown(problem_id)) from None

    def named(self, name: str | Path) -> Problem:
        """The problem with this id, or that of this file or folder.

        Raises UserError for an unknown id and for a path that does not hold one problem.
        """
        if isinstance(name, str) and (name in self.problems or not (name.endswith(".py") or Path(name).exists())):
            return self.problem(name)
        found = find_problems([Path(name)], with_shipped=False).problems
        if len(found) > 1:
            raise UserError(f"{printable(name)}: {len(found)} problems; add --problems {printable(name)} and name one")
        return next(iter(found.values()))

    def including(self, problem: Problem) -> Catalog:
        """This catalog with one more problem, or with this one in place of that with its id."""
        return Catalog({**self.problems, problem.id: problem}, self.skipped)

    def _unknown(self, problem_id: str) -> str:
        for one in self.skipped:
            if problem_id in (one.path.stem, f"{one.path.parent.name}/{one.path.stem}"):
                return f"problem {problem_id!r} cannot be used: {one}"
        near = difflib.get_close_matches(problem_id, self.problems, n=3, cutoff=0.4)
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        remedy = f"{guess}`grader problems` lists the known ones, --problems DIR adds a folder of them"
        return f"unknown problem {printable(repr(problem_id))}; {remedy}"


def find_problems(folders: Iterable[Path] = (), *, with_shipped: bool = True) -> Catalog:
    """The shipped problems and those in the folders, searched recursively.

    A problem in a later folder replaces one with the same id. A folder may also be a single problem. Raises UserError
    for a folder that is missing or holds no problem.
    """
    problems: dict[str, Problem] = {}
    skipped: list[Refusal] = []
    for folder in [*([shipped("problems")] if with_shipped else []), *folders]:
        catalog = _problems_under(folder)
        problems.update(catalog.problems)
        skipped.extend(catalog.skipped)
    return Catalog(problems=_shortened(problems), skipped=tuple(skipped))


def walk(folder: Path) -> Iterator[tuple[ProblemFormat, Path]]:
    """Files and folders that a format claims, sorted, with the format; hidden ones are skipped."""
    for path in _entries(folder):
        claimed_by = claimant(path)
        if claimed_by is not None:
            yield claimed_by, path
        elif path.is_dir() and not path.is_symlink():
            yield from walk(path)


def claimant(path: Path) -> ProblemFormat | None:
    """The format of a path; None for a helper file and for a path that no format claims."""
    if any(one.is_helper(path) for one in FORMATS.values()):
        return None
    return next((one for one in FORMATS.values() if one.claims(path)), None)


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except PermissionError:
        return []


def _problems_under(folder: Path) -> Catalog:
    claimed_by = claimant(existing(folder))
    if claimed_by is not None:
        found: Iterable[tuple[ProblemFormat, Path]] = [(claimed_by, folder)]
    elif not folder.is_dir():
        raise UserError(f"{printable(folder)}: not a problem; give a folder of problems, or a .py file with a Model")
    else:
        root = folder
        for one in FORMATS.values():
            root = one.search_root(root)
        found = walk(root)
    problems: dict[str, Problem] = {}
    skipped: list[Refusal] = []
    for claimed_by, path in found:
        try:
            problem = claimed_by.read(path)
            if not problem.id.isprintable():
                raise NotAProblem("its name has characters that are not printed; rename it")
            if not is_text(str(problem.path)):
                raise NotAProblem("its path is not UTF-8; rename the folder")
            if problem.id in problems:
                raise NotAProblem(f"{problems[problem.id].path} already has the id {problem.id}; rename one of them")
            problems[problem.id] = problem
        except NotAProblem as reason:
            skipped.append(Refusal(path, str(reason)))
    if not problems:
        first = f" (the first of {len(skipped)} files: {skipped[0]})" if skipped else ""
        kinds = ", or ".join(one.looks_like for one in sorted(FORMATS.values(), key=lambda one: one.name, reverse=True))
        raise UserError(f"{printable(folder)}: no problem in it{first}; a problem is {kinds}")
    return Catalog(problems, tuple(skipped))


def _shortened(problems: Mapping[str, Problem]) -> dict[str, Problem]:
    """Problems by name, without the group if only one problem has the name."""
    counts = Counter(map(_name, problems))
    short = {
        problem_id: problem if counts[_name(problem_id)] > 1 else problem.model_copy(update={"id": _name(problem_id)})
        for problem_id, problem in problems.items()
    }
    return {problem.id: problem for problem in short.values()}


def _name(problem_id: str) -> str:
    return problem_id.rpartition("/")[2]
