"""What there is to grade, in the forms in which callers have it: made into pairs of a problem and a submission."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from grader.catalog.problems_and_submissions import MAX_SOURCE_BYTES, Catalog, find_problems, find_submissions
from grader.errors import UserError
from grader.verdict.models import Problem, Submission

Work = Submission | Mapping[str, object] | tuple[str | Path | Problem, str | Path | Submission]
"""One thing to grade:

- `(problem, source)`: the problem as an id, a file or a `Problem`; the source as text, as the `Path` of a file, or as a
  `Submission`;
- a mapping with `problem` and `source`, and where known `author`, `label` and `sample`: a line of a JSONL batch;
- a `Submission`, whose `problem_id` names the problem.
"""

NOBODY = "unknown"
"""The author of a text that came without one."""
MAX_LINE_BYTES = 8 << 20
"""Of a line of a JSONL batch: the largest source with every character escaped, and room for the rest."""
_KEYS = {"problem", "source", "author", "label", "sample"}
_MAX_SAMPLE = (1 << 63) - 1
"""SQLite's largest integer."""


class RequestReader:
    """Makes pairs of problem and submission out of what callers have."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def pair(self, work: Work) -> tuple[Problem, Submission]:
        """Raises UserError for what is no work, and for an unknown problem."""
        if isinstance(work, Submission):
            return self._catalog.problem(work.problem_id), work
        if isinstance(work, Mapping):
            return self._line(work)
        problem, source = work
        if isinstance(source, Submission):
            return self._problem(problem), source
        return self.resolve(source, None, problem) if isinstance(source, Path) else self.resolve(None, source, problem)

    def from_json(self, line: bytes, overrides: Mapping[str, str]) -> tuple[Problem, Submission]:
        """A line of a JSONL batch; `overrides` go before what it says.

        Raises UserError in one line. `problem` is an id here, never a file: problem files are run as they stand, and a
        batch may come from anywhere.
        """
        fields = {**_object(line), **overrides}
        if isinstance(fields.get("problem"), str):
            fields["problem"] = self._catalog.problem(str(fields["problem"]))
        return self._line(fields)

    def resolve(
        self, path: str | Path | None, source: str | None, problem: str | Path | Problem | None
    ) -> tuple[Problem, Submission]:
        """Raises UserError for a file or problem that is not there, and where path and source are both given."""
        if (path is None) == (source is None):
            raise UserError("give a submission's path or its source, one of them")
        if path is not None:
            return self._file(Path(path), None if problem is None else self._problem(problem))
        if problem is None:
            raise UserError("a source has no file name that tells its problem; name it: problem=...")
        assert source is not None
        found = self._problem(problem)
        return found, _text(found, source)

    def _line(self, line: Mapping[str, object]) -> tuple[Problem, Submission]:
        problem, source = line.get("problem"), line.get("source")
        unknown = set(line) - _KEYS
        if not isinstance(problem, str | Path | Problem) or not isinstance(source, str) or unknown:
            raise UserError(
                f"a mapping with {', '.join(sorted(map(str, line))) or 'nothing'} is no work; it needs problem and "
                "source, and may have author, label and sample"
            )
        found = self._problem(problem)
        rest = {key: line[key] for key in ("author", "label", "sample") if line.get(key) is not None}
        return found, _text(found, source, **rest)

    def _problem(self, problem: str | Path | Problem) -> Problem:
        if isinstance(problem, Problem):
            return problem
        known = self._catalog.problems.get(problem) if isinstance(problem, str) else None
        if known is not None:
            return known
        path = Path(problem)
        if path.suffix != ".py" and isinstance(problem, str):
            return self._catalog.problem(problem)  # raises, naming the nearest ids
        return find_problems([path]).problem(path.stem)

    def _file(self, path: Path, problem: Problem | None) -> tuple[Problem, Submission]:
        if path.is_dir():
            raise UserError(f"{path}: a folder; `grade` takes one file")
        catalog = self._catalog
        if problem is not None:
            catalog = Catalog({**catalog.problems, problem.id: problem})
        (submission,) = find_submissions([path], catalog, problem_id=problem.id if problem else None)
        return catalog.problem(submission.problem_id), submission


def _object(line: bytes) -> dict[str, object]:
    """The JSON object in a line. Raises UserError for what is none, and for text that UTF-8 cannot hold."""
    if len(line) > MAX_LINE_BYTES:
        raise UserError(f"longer than {MAX_LINE_BYTES} bytes")
    try:
        found = json.loads(line.decode("utf-8-sig"))
        json.dumps(found, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        raise UserError(f"no JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}") from None
    except UnicodeEncodeError:
        raise UserError("half of a surrogate pair (\\ud800 to \\udfff) stands alone, which is no text") from None
    except (RecursionError, ValueError) as error:  # nested too deeply; a number with too many digits
        raise UserError(f"no JSON that can be read: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"a JSON {type(found).__name__}; a line is an object with problem and source")
    return found


def _text(problem: Problem, source: str, **given: object) -> Submission:
    """A submission that is no file. Raises UserError for an author, label or sample of a wrong type."""
    unreadable = None if source.strip() else "The file is empty."
    size = len(source.encode(errors="surrogatepass"))
    if size > MAX_SOURCE_BYTES:
        source, unreadable = "", f"The text has {size} bytes; at most {MAX_SOURCE_BYTES} are read."
    fields = {"author": NOBODY, "problem_id": problem.id, "path": f"{problem.id}.py", **given}
    try:
        made = Submission.model_validate({**fields, "source": source, "unreadable": unreadable})
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{first['loc'][0]} of a piece of work: {first['msg']}") from None
    if made.sample is not None and not 0 <= made.sample <= _MAX_SAMPLE:
        raise UserError(f"sample of a piece of work: {made.sample} is out of range; samples count from 0")
    return made
