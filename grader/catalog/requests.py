"""Reads work in all forms that callers may pass, and makes it a `Request`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from grader.catalog.files import usable
from grader.catalog.problems import Catalog
from grader.catalog.source_analysis import Language, analyse
from grader.catalog.submissions import check_names, check_sample, find_submissions
from grader.errors import UserError, plainly
from grader.options import AUTO, GraderOptions
from grader.verdict.models import Device, Problem, Submission
from grader.verdict.precision import Precision

Pair = tuple[Problem, Submission]
Work = Submission | Mapping[str, object] | tuple[str | Path | Problem, str | Path | Submission]
"""One thing to grade:

- `(problem, source)`: the problem as an id, a file or a `Problem`; the source as text, as the `Path` of a file, or as a
  `Submission`;
- a mapping with `problem` and `source`, and where known `author`, `label`, `sample`, `precision`: a line of JSONL;
- a `Submission`, whose `problem_id` names the problem.
"""

UNKNOWN_AUTHOR = "unknown"
"""The author of a source without a given author."""
MAX_LINE_BYTES = 8 << 20
"""Longest line of a JSONL batch: the largest source with every character escaped, and room for the other fields."""
_FIELDS = {"problem", "source", "author", "label", "sample", "precision"}


@dataclass(frozen=True)
class Request:
    """One submission to grade, with all that is determined before a worker starts."""

    problem: Problem
    submission: Submission
    device: Device
    languages: tuple[Language, ...]
    precision: Precision = Precision.FP32
    profiled: bool = False
    """Whether its profile is wanted, and no verdict."""
    priority: int = 0
    """A higher one goes first where it waits, as in a pool."""


def make_request(
    problem: Problem, submission: Submission, options: GraderOptions, *, default_device: Device
) -> Request:
    """Analyses the source once. `default_device` is used with `auto` for a source that runs on any device.

    Raises UserError for a precision that the options do not allow.
    """
    submission = _with_usable_source(submission)
    analysis = analyse(submission.source)
    suited = default_device if analysis.needs == "any" else Device(analysis.needs)
    if submission.format != problem.format:  # a Submission made by hand
        submission = submission.model_copy(update={"format": problem.format})
    chosen = suited if options.device == AUTO else Device(options.device)
    return Request(problem, submission, chosen, analysis.languages, options.precision_of(submission.precision))


class RequestReader:
    """Reads (problem, submission) pairs from all forms of work, to be graded with these options."""

    def __init__(self, catalog: Catalog, options: GraderOptions = GraderOptions()) -> None:  # noqa: B008
        self._catalog, self._options = catalog, options

    def pair(self, work: Work) -> Pair:
        """The problem and submission of a piece of work.

        Raises UserError for an unknown problem or an unsupported type.
        """
        if isinstance(work, Submission):
            return self._catalog.problem(work.problem_id), work
        if isinstance(work, Mapping):
            return self._fields(work)
        problem, source = work
        if isinstance(source, Submission):
            return self._problem(problem), source
        return self.resolve(source, None, problem) if isinstance(source, Path) else self.resolve(None, source, problem)

    def from_json(self, line: bytes, overrides: Mapping[str, str]) -> Pair:
        """The problem and submission of a line of a JSONL batch; `overrides` replace its fields.

        `problem` is an id here, never a file: problem files are executed, and a batch may come from anywhere. Raises
        UserError with a message of one line.
        """
        fields = {**_object(line), **overrides}
        if isinstance(fields.get("problem"), str):
            fields["problem"] = self._catalog.problem(str(fields["problem"]))
        problem, submission = self._fields(fields)
        self._options.precision_of(submission.precision)
        return problem, submission

    def resolve(self, path: str | Path | None, source: str | None, problem: str | Path | Problem | None) -> Pair:
        """The problem and submission of a file or of a source.

        Raises UserError for a missing file or an unknown problem, and unless exactly one of path and source is given.
        """
        if (path is None) == (source is None):
            raise UserError("give either the submission's path or its source")
        if path is not None:
            if "\n" in str(path):
                raise UserError("the path has several lines; give a source as source=...")
            return self._file(Path(path), None if problem is None else self._problem(problem))
        if problem is None:
            raise UserError("a source has no file name that names its problem; add problem=...")
        if not isinstance(source, str):
            raise UserError(f"source: {type(source).__name__} instead of a string")
        resolved = self._problem(problem)
        return resolved, _submission(resolved, source)

    def _fields(self, fields: Mapping[str, object]) -> Pair:
        unknown = sorted(map(str, set(fields) - _FIELDS))
        if unknown:
            raise UserError(f"unknown field {unknown[0]!r}; the fields are {', '.join(sorted(_FIELDS))}")
        problem, source = fields.get("problem"), fields.get("source")
        for name, value, types in (("problem", problem, str | Path | Problem), ("source", source, str)):
            if value is None:
                raise UserError(f"missing field {name!r}")
            if not isinstance(value, types):
                raise UserError(f"field {name!r}: {type(value).__name__} instead of a string")
        assert isinstance(problem, str | Path | Problem)
        assert isinstance(source, str)
        resolved = self._problem(problem)
        rest = {key: fields[key] for key in ("author", "label", "sample", "precision") if fields.get(key) is not None}
        return resolved, _submission(resolved, source, **rest)

    def _problem(self, problem: str | Path | Problem) -> Problem:
        return problem if isinstance(problem, Problem) else self._catalog.named(problem)

    def _file(self, path: Path, problem: Problem | None) -> Pair:
        if path.is_dir():
            raise UserError(f"{path}: a folder; `grade` takes one file")
        catalog = self._catalog if problem is None else self._catalog.including(problem)
        found = find_submissions([path], catalog, problem_id=problem.id if problem else None)
        if found.refused:
            raise UserError(str(found.refused[0]))
        (submission,) = found.submissions
        return catalog.problem(submission.problem_id), submission


def _object(line: bytes) -> dict[str, object]:
    """The JSON object in a line. Raises UserError for anything else, and for names that UTF-8 cannot encode."""
    if len(line) > MAX_LINE_BYTES:
        raise UserError(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        value = json.loads(line.decode("utf-8-sig"))
        if isinstance(value, dict):
            json.dumps({**value, "source": None}, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise UserError(f"invalid JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"invalid UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}") from None
    except UnicodeEncodeError:
        raise UserError("invalid text: an unpaired surrogate (\\ud800 to \\udfff)") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a number with too many digits
        raise UserError(f"invalid JSON: {error}") from None
    if not isinstance(value, dict):
        raise UserError(f"a JSON {type(value).__name__} instead of an object")
    return value


def _with_usable_source(submission: Submission) -> Submission:
    """The submission, with a source that can be stored and compiled, or with the reason why it has none."""
    if submission.unreadable is not None:
        return submission
    source, unreadable = usable(submission.source)
    return submission.model_copy(update={"source": source, "unreadable": unreadable})


def _submission(problem: Problem, source: str, **fields: object) -> Submission:
    """A submission that is not a file. Raises UserError for an author, label or sample of the wrong type."""
    source, unreadable = usable(source)
    defaults = {
        "author": UNKNOWN_AUTHOR,
        "problem_id": problem.id,
        "path": f"{problem.id}.py",
        "format": problem.format,
    }
    try:
        submission = Submission.model_validate({**defaults, **fields, "source": source, "unreadable": unreadable})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"field {first['loc'][0]!r}: {plainly(first['msg'])}") from None
    check_names(author=submission.author, label=submission.label)
    check_sample(submission.sample)
    return submission
