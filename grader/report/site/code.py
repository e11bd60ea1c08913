"""Renders sources as HTML: highlighting, also of CUDA inside Python strings, and diffs of two sources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher
from html import escape

from markupsafe import Markup

from grader.report.console import clean
from grader.report.python_lexer import LONGEST_HIGHLIGHTED, PYTHON_PARTS, pieces

_LONGEST_COMPARED = 1_000
"""Lines; the time of a comparison is quadratic in them."""

_CONTEXT_LINES = 3

_CUDA = ("#include", "__global__", "__device__", "torch::Tensor", "at::Tensor")
"""A string that contains one of these is highlighted as C++."""

_OPENING = re.compile(r"""\w{0,2}(?:\"{3}|'{3}|"|')?""")

# An unclosed comment or string extends to the end: searching its end from every start would take quadratic time.
_CUDA_PARTS = re.compile(
    r"""[^\W\d]\w*+(?:\s?\()?
    |[^\w"/\n]++
    |\n[ \t]*+(?:\#[^\n]*+)?
    |\d[\w.]*\b
    |//[^\n]*+|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?
    |"(?:[^"\\\n]++|\\.)*+"?
    |.""",
    re.VERBOSE,
)

_CUDA_WORDS = frozenset(
    re.findall(
        r"\w+",
        """__global__ __device__ __host__ __shared__ __restrict__ __constant__ __launch_bounds__ __forceinline__
        __syncthreads auto bool break case char class const constexpr continue default do double else enum extern false
        float for half if inline int int32_t int64_t long namespace nullptr return short size_t static struct switch
        template true typedef typename unsigned using void volatile while""",
    )
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
    return _PythonParts().of(escape(source, quote=False)).rstrip("\n").split("\n")


class _Parts(dict[str, str]):
    """The parts of one escaped source as HTML. Most are found again, which makes this twice as fast as a callback.

    An entity, as in `&lt;`, is no part that is highlighted.
    """

    pattern: re.Pattern[str]

    def of(self, text: str) -> str:
        """All of a text as HTML."""
        return "".join(map(self.__getitem__, self.pattern.findall(text)))

    def __missing__(self, part: str) -> str:
        made = self[part] = self.made(part)
        return made

    def made(self, part: str) -> str:
        """One part as HTML."""
        raise NotImplementedError


class _PythonParts(_Parts):
    pattern = PYTHON_PARTS

    def made(self, part: str) -> str:
        if ('"' in part or "'" in part) and part[0] not in "#@" and any(one in part for one in _CUDA):
            return _cuda(part)
        return "".join(_marked(kind, text) if kind else text for kind, text in pieces(part))


class _CudaParts(_Parts):
    pattern = _CUDA_PARTS

    def made(self, part: str) -> str:
        first = part[0]
        if first == "/" and len(part) > 1:
            return _marked("c", part)
        if first == '"':
            return _marked("s", part)
        if first == "\n":
            return f"\n{_marked('p', part[1:])}" if "#" in part else part
        if first.isdecimal():
            return _marked("m", part)
        word = part.removesuffix("(").rstrip()
        class_ = "k" if word in _CUDA_WORDS else "f" if word != part and word.isidentifier() else ""
        return _marked(class_, word) + part[len(word) :] if class_ else part


def _marked(class_: str, inner: str) -> str:
    """Escaped text in elements of a class; each line is an element of its own, so a token over several is split."""
    if "\n" in inner:
        inner = inner.replace("\n", f'</i>\n<i class="{class_}">')
    return f'<i class="{class_}">{inner}</i>'


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


def _cuda(text: str) -> str:
    """A string with CUDA in it as HTML, from escaped text: an entity is no part that is highlighted.

    Ten times as fast as a lexer, and kernels are most of what there is.
    """
    opening = _OPENING.match(text)
    end = opening.end() if opening else 0
    # A line break of its own before it, because a preprocessor's line is found by that.
    return _marked("s", text[:end]) + _CudaParts().of("\n" + text[end:])[1:]


def numbered(lines: Iterable[str]) -> Markup:
    """Lines with ids such as `L12` for links; the style sheet prints the numbers."""
    return Markup(
        "\n".join(f'<span class="l" id="L{number}">{line}</span>' for number, line in enumerate(lines, start=1))
    )
