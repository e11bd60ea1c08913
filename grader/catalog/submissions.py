"""Finds submissions in files and folders, and the problem that each file name gives.

Files are read and never imported.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from grader.catalog.files import dangles, existing, read_source, real
from grader.catalog.formats import FORMATS, NamedBy
from grader.catalog.problems import Catalog, Refusal, walk
from grader.errors import UserError, printable
from grader.verdict.models import Problem, Submission

_MAX_SAMPLE = (1 << 63) - 1
"""SQLite's largest integer."""
_LONGEST_NAME = 255
"""Characters of an author or a label, which every board shows: those of a file's name on Linux."""
_SEPARATOR = re.compile(r"(?=__)")
"""Separates a problem's id from a label. Ids may contain it or end in an underscore, as 41 ids of KernelBench do."""


@dataclass(frozen=True)
class FoundSubmissions:
    """The result of a search for submissions."""

    submissions: tuple[Submission, ...]
    refused: tuple[Refusal, ...] = ()


def find_submissions(
    paths: Iterable[Path], catalog: Catalog, *, problem_id: str | None = None, author: str | None = None
) -> FoundSubmissions:
    """Finds submissions in files and, recursively, in folders, and lists what cannot be graded.

    `problem_id` and `author` override what the files' names and folders say. Raises UserError for an unknown
    `problem_id` and for an `author` with control characters.
    """
    if problem_id is not None:
        catalog.problem(problem_id)
    check_names(author=author)
    submissions: dict[Path, Submission] = {}
    refused: dict[Path, Refusal] = {}
    for given in paths:
        try:
            files = list(_submission_files(given, catalog))
        except UserError as error:
            refused[given] = _refusal(given, error)
            continue
        for path in files:
            try:
                submissions[real(path)] = _submission(existing(path), catalog, problem_id, author)
            except UserError as error:
                refused[real(path)] = _refusal(path, error)
    return FoundSubmissions(tuple(submissions.values()), tuple(refused.values()))


def named_by(path: Path, problems: Mapping[str, Problem]) -> NamedBy:
    """The problem and label in a file's name.

    The formats' own naming rules apply first, then the longest known id followed by `__` and the label. If no id is
    known, the part before the first `__` is the id. Raises UserError.
    """
    for one in FORMATS.values():
        named = one.named_by(path, problems)
        if named is not None:
            return named
    stem = path.stem
    ends = [len(stem), *sorted((match.start() for match in _SEPARATOR.finditer(stem)), reverse=True)]
    for end in ends:
        for problem_id in (f"{real(path).parent.name}/{stem[:end]}", stem[:end]):
            if problem_id in problems:
                return NamedBy(problem_id, label=stem[end + 2 :] or None)
    before, _, label = stem.partition("__")
    return NamedBy(before, label=label or None)


def check_names(**names: str | None) -> None:
    """Raise UserError for a name that fills a page, or that could forge a line or another name."""
    for kind, name in names.items():
        if name is not None and len(name) > _LONGEST_NAME:
            raise UserError(f"the {kind} has {len(name)} characters; at most {_LONGEST_NAME} are taken")
        if name is not None and not name.isprintable():
            raise UserError(f"the {kind} '{printable(name)}' has characters that are not printed; leave them out")


def check_sample(sample: int | None) -> None:
    """Raise UserError for a number that no database takes."""
    if sample is not None and not 0 <= sample <= _MAX_SAMPLE:
        raise UserError(f"field 'sample': {sample} is out of range; samples count from 0")


def _refusal(path: Path, error: UserError) -> Refusal:
    return Refusal(path, str(error).removeprefix(f"{printable(path)}: "))


def _submission_files(path: Path, catalog: Catalog) -> Iterator[Path]:
    if not existing(path).is_dir():
        yield path
        return
    files = [file for _, file in walk(path) if file.is_file() and _looks_like_a_submission(file, catalog)]
    files += sorted(file for file in path.rglob("*.py") if dangles(file))
    if not files:
        entries = " or ".join(sorted(str(one.entry) for one in FORMATS.values()))
        raise UserError(f"{printable(path)}: no submission in it; one is <author>/<problem_id>.py with a {entries}")
    yield from files


def _looks_like_a_submission(path: Path, catalog: Catalog) -> bool:
    """Whether a file beside submissions is skipped: problems and helper files, but not a misspelt problem id."""
    try:
        problem = catalog.problems.get(named_by(path, catalog.problems).problem_id)
        if problem is not None:
            return real(path) != problem.path
        source = read_source(path)[0]
    except UserError:  # the file's own fault, which is reported when it is read as a submission
        return True
    return any(one.entry.name in source for one in FORMATS.values())


def _submission(path: Path, catalog: Catalog, problem_id: str | None, author: str | None) -> Submission:
    """Raises UserError whose message starts with the path."""
    folder = real(path).parent
    try:
        named = named_by(path, catalog.problems) if problem_id is None else _for_problem(path, problem_id)
        problem = catalog.problem(named.problem_id)
        grouped = problem.id == f"{folder.name}/{problem.id.rpartition('/')[2]}"
        author = author or (folder.parent if grouped else folder).name or "unknown"
        check_names(author=author, label=named.label)
        check_sample(named.sample)
    except UserError as error:
        raise UserError(f"{printable(path)}: {error}") from None
    source, unreadable = read_source(path)
    return Submission(
        author=author,
        label=named.label,
        sample=named.sample,
        problem_id=problem.id,
        path=printable(path),
        source=source,
        unreadable=unreadable,
        format=problem.format,
    )


def _for_problem(path: Path, problem_id: str) -> NamedBy:
    """A file with a given problem; the label is the part after the id, or the whole stem if that has another name."""
    name = problem_id.rpartition("/")[2]
    sample = next((one.sample_of(path) for one in FORMATS.values() if one.sample_of(path) is not None), None)
    if path.stem == name or sample is not None:
        return NamedBy(problem_id, sample=sample)
    label = path.stem.removeprefix(f"{name}__")
    return NamedBy(problem_id, label=label or None)
