"""The highlighted parts of a Python source, found in time linear in the source, whatever it is.

Pygments' own lexer takes quadratic time for some, such as a megabyte of blank lines: hours, for `grader show`.
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from typing import Any

from pygments.lexer import Lexer
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text

LONGEST_HIGHLIGHTED = 200_000
"""Characters; a longer source is shown without highlighting, which takes microseconds for each."""

# No expression reads a stretch twice: repetitions are possessive, and an unclosed string ends with its line or, in
# three quotes, with the text. The most frequent parts come first.
PYTHON_PARTS = re.compile(
    r"""(?:def|class)[ ]\w++
    |[^\W\d]\w*+(?!["'])
    |[^\w"'\#@]++
    |\#[^\n]*+
    |(?:[rRbBuUfF]{1,2})?(?:
        \"{3}(?:[^"\\]++|\\[\s\S]|"(?!""))*+(?:\"{3})?
        |'{3}(?:[^'\\]++|\\[\s\S]|'(?!''))*+(?:'{3})?
        |"(?:[^"\\\n]++|\\[\s\S])*+"?
        |'(?:[^'\\\n]++|\\[\s\S])*+'?)
    |@[ \t]*+[\w.]++
    |\d[\w.]*+
    |\w++
    |.""",
    re.VERBOSE,
)

_WORDS = frozenset(keyword.kwlist)
_OPERATORS = frozenset(("and", "in", "is", "not", "or"))
_TOKENS = {"c": Comment, "b": Name.Decorator, "s": String, "m": Number, "k": Keyword, "f": Name.Function, "": Text}


def pieces(part: str) -> Iterator[tuple[str, str]]:
    """(kind, text) of what is in one part.

    The kinds are empty, c (comment), b (decorator), s (string), m (number), k (keyword) and f (a name that is defined).
    """
    first = part[0]
    if first == "#":
        yield "c", part
    elif first == "@" and len(part) > 1:
        yield "b", part
    elif '"' in part or "'" in part:
        yield "s", part
    elif first.isdecimal():
        yield "m", part
    else:
        word, space, name = part.partition(" ")
        yield ("k", word) if word in _WORDS else ("", part)
        if name and word in _WORDS:
            yield "", space
            yield "f", name


class LinearPythonLexer(Lexer):  # type: ignore[misc]  # pygments has no types
    """Comments, strings, numbers, keywords, decorators, and names that are defined."""

    name = "Python, in linear time"

    def get_tokens_unprocessed(self, text: str) -> Iterator[tuple[int, Any, str]]:
        """(index, token, text) of each piece."""
        at = 0
        for part in PYTHON_PARTS.findall(text):
            for kind, piece in pieces(part):
                yield at, Operator.Word if piece in _OPERATORS else _TOKENS[kind], piece
                at += len(piece)
