"""Renders sources as HTML: highlighting, also of CUDA inside Python strings, and diffs of two sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cache
from html import escape
from itertools import groupby
from operator import itemgetter

from markupsafe import Markup
from pygments.lexer import Lexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, _TokenType

from grader.report.console import clean
from grader.report.python_lexer import LONGEST_HIGHLIGHTED, LinearPythonLexer

_LONGEST_COMPARED = 1_000
"""Lines; the time of a comparison is quadratic in them."""

_CONTEXT_LINES = 3

_CUDA = ("#include", "__global__", "__device__", "torch::Tensor", "at::Tensor")
"""A string that contains one of these is highlighted as C++."""

_OPENING = re.compile(r"""\w{0,2}(?:\"{3}|'{3}|"|')?""")

# An unclosed comment or string extends to the end: searching its end from every start would take quadratic time.
_CUDA_PARTS = re.compile(
    r"""(?P<c>//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?)
    |(?P<p>^[ \t]*\#[^\n]*)
    |(?P<s>"(?:[^"\\\n]|\\.)*+"?)
    |(?P<m>\b\d[\w.]*\b)
    |(?P<k>\b(?:__(?:global|device|host|shared|restrict|constant|launch_bounds|syncthreads|forceinline)__|__syncthreads
        |auto|bool|break|case|char|class|const|constexpr|continue|default|do|double|else|enum|extern|false|float|for|half
        |if|inline|int|int32_t|int64_t|long|namespace|nullptr|return|short|size_t|static|struct|switch|template|true
        |typedef|typename|unsigned|using|void|volatile|while)\b)
    |(?P<f>\b[A-Za-z_]\w*(?=\s?\())""",
    re.MULTILINE | re.VERBOSE,
)

_CLASSES: tuple[tuple[_TokenType, str], ...] = (
    (Comment, "c"),
    (Keyword, "k"),
    (String, "s"),
    (Number, "m"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "b"),
    (Operator.Word, "k"),
)


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff, with its numbers in both sources."""

    kind: str
    """`same`, `added`, `removed` or `gap`."""
    text: str
    old: int | None = None
    new: int | None = None


@dataclass(frozen=True)
class Diff:
    """The difference of two sources."""

    lines: tuple[DiffLine, ...]
    added: int
    removed: int
    refused: str | None = None
    """Why there is no diff; None if there is one."""

    def rows(self) -> Markup:
        """The rows of a table, made here because a template takes many times as long."""
        return Markup("\n".join(map(_diff_row, self.lines)))


def highlight(source: str) -> list[str]:
    """The lines of a Python file, as HTML."""
    source = clean(source)
    if len(source) > LONGEST_HIGHLIGHTED:
        return [escape(one) for one in source.split("\n")]
    pieces: list[str] = []
    for class_, text in _pieces(source):
        inner = escape(text, quote=False)
        if class_:
            # Each line is an element of its own, so a token over several lines is split.
            inner = f'<i class="{class_}">' + inner.replace("\n", f'</i>\n<i class="{class_}">') + "</i>"
        pieces.append(inner)
    return "".join(pieces).rstrip("\n").split("\n")


def compare(old: str, new: str) -> Diff:
    """The lines removed from `old` and added in `new`, with some context."""
    before, after = clean(old).splitlines(), clean(new).splitlines()
    if max(len(before), len(after)) > _LONGEST_COMPARED:
        return Diff((), 0, 0, refused=f"one source has more than {_LONGEST_COMPARED} lines")
    lines = tuple(_diff_lines(before, after))
    kinds = [line.kind for line in lines]
    return Diff(lines, kinds.count("added"), kinds.count("removed"))


def _diff_lines(before: list[str], after: list[str]) -> Iterator[DiffLine]:
    groups = SequenceMatcher(None, before, after).get_grouped_opcodes(_CONTEXT_LINES)
    for position, group in enumerate(groups):
        if position:
            yield DiffLine("gap", "")
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                for offset in range(old_end - old_start):
                    yield DiffLine("same", before[old_start + offset], old_start + offset + 1, new_start + offset + 1)
                continue
            for number in range(old_start, old_end):
                yield DiffLine("removed", before[number], old=number + 1)
            for number in range(new_start, new_end):
                yield DiffLine("added", after[number], new=number + 1)


def _diff_row(line: DiffLine) -> str:
    if line.kind == "gap":
        return '<tr class="gap"><td colspan="3">⋯</td></tr>'
    sign = {"added": "+ ", "removed": "- "}.get(line.kind, "  ")
    return (
        f'<tr class="{line.kind}"><td class="num">{line.old or ""}</td><td class="num">{line.new or ""}</td>'
        f"<td>{sign}{escape(line.text)}</td></tr>"
    )


def _pieces(source: str) -> Iterator[tuple[str, str]]:
    """Yields (class, text); neighbours of the same class are joined."""
    tokens = ((_class(token), text) for _, token, text in _lexer().get_tokens_unprocessed(source))
    for class_, group in groupby(tokens, key=itemgetter(0)):
        text = "".join(piece for _, piece in group)
        if class_ == "s" and any(one in text for one in _CUDA):
            yield from _cuda_pieces(text)
        else:
            yield class_, text


def _cuda_pieces(text: str) -> Iterator[tuple[str, str]]:
    # Ten times as fast as a lexer, and kernels are most of what there is.
    opening = _OPENING.match(text)
    end = opening.end() if opening else 0
    yield "s", text[:end]
    for match in _CUDA_PARTS.finditer(text, end):
        yield "", text[end : match.start()]
        yield match.lastgroup or "", match.group()
        end = match.end()
    yield "", text[end:]


@cache
def _lexer() -> Lexer:
    return LinearPythonLexer()


@cache
def _class(token: _TokenType) -> str:
    return next((class_ for kind, class_ in _CLASSES if token in kind), "")


def numbered(lines: Iterable[str]) -> Markup:
    """Lines with ids such as `L12` for links; the style sheet prints the numbers."""
    return Markup(
        "\n".join(f'<span class="l" id="L{number}">{line}</span>' for number, line in enumerate(lines, start=1))
    )
