"""Selects the lines of a submission's source that a diagnosis is about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from grader.verdict.models import Diagnosis, Verdict
from grader.verdict.python_source import parse

AROUND = 3
"""Lines shown before and after a line that a diagnosis names."""

_FRAME = re.compile(r'^[ \t]*+File "(?P<path>[^"\n]*)", line (?P<line>\d+).*', re.MULTILINE)
_NAMED_LINE = re.compile(r"\(line (\d+)\)")
_GCC_EXCERPT = re.compile(r"^\s*\d+ \| (?P<code>.*\S)")


def relevant_lines(verdict: Verdict, cause: Diagnosis, source: str, errors: Iterable[str]) -> list[str]:
    """Numbered lines of the source: those that the evidence names, else the function that the stage runs.

    `errors` are the lines of the compiler's first error.
    """
    lines = source.splitlines()
    named = [*_traced(verdict, cause), *_quoted(errors, lines), *_in_message(cause)]
    spans = [(line - AROUND, line + AROUND) for line in named[:2] if 1 <= line <= len(lines)]
    return list(_numbered(lines, spans or list(_functions(source, cause))))


def submission_frames(verdict: Verdict, cause: Diagnosis) -> list[re.Match[str]]:
    """The frames of the diagnosis's traceback that are in the submission's file, outermost first."""
    frames = _FRAME.finditer(str(cause.detail.get("traceback", "")))
    return [frame for frame in frames if frame["path"].endswith(f"{verdict.problem}.py")]


def _traced(verdict: Verdict, cause: Diagnosis) -> list[int]:
    return [int(frame["line"]) for frame in reversed(submission_frames(verdict, cause))]


def _in_message(cause: Diagnosis) -> Iterator[int]:
    if cause.code == "syntax_error":
        yield from (int(found[1]) for found in _NAMED_LINE.finditer(cause.message))


def _quoted(errors: Iterable[str], lines: list[str]) -> Iterator[int]:
    """The lines of the source that a compiler quotes; its own numbers count from the start of a generated file."""
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines, start=1):
        numbers.setdefault(line.strip(), number)
    for error in errors:
        excerpt = _GCC_EXCERPT.match(error)
        code = (excerpt["code"] if excerpt else error).strip()
        if len(code) > 1 and code in numbers:
            yield numbers[code]


def _functions(source: str, cause: Diagnosis) -> Iterator[tuple[int, int]]:
    """(first line, last line) of the functions that the diagnosis's stage runs."""
    try:
        tree = parse(source)
    except SyntaxError:
        return
    wanted = {"backward": "backward", "load": "__init__"}.get(cause.stage, "forward")
    found: dict[str, list[tuple[int, int]]] = {}
    for owner in (node for node in tree.body if isinstance(node, ast.ClassDef)):
        for one in owner.body:
            if isinstance(one, ast.FunctionDef):
                found.setdefault(one.name, []).append((one.lineno, one.end_lineno or one.lineno))
    yield from found.get(wanted) or found.get("forward") or []


def _numbered(lines: list[str], spans: Iterable[tuple[int, int]]) -> Iterator[str]:
    shown = {number for first, last in spans for number in range(max(1, first), min(len(lines), last) + 1)}
    before = None
    for number in sorted(shown):
        if before is not None and number > before + 1:
            yield "..."
        yield f"{number:4} | {lines[number - 1]}"
        before = number
