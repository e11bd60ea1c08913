"""Parses the Python of a submission, in time linear in its length."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

MOST_F_STRINGS = 1_000_000_000
"""Characters of an f-string times its braces, added up over a source. Before Python 3.12, parsing an expression in an
f-string takes time that grows with the string's length: 0.2 ns a character and expression, so up to 0.2 s."""

_LITERAL = re.compile(
    r"""\#[^\n]*|(?P<prefix>\b[a-zA-Z]{1,2})?(?:
        \"{3}(?P<long>(?:[^"\\]|\\.|"(?!""))*+)(?:\"{3})?
        |'{3}(?P<other_long>(?:[^'\\]|\\.|'(?!''))*+)(?:'{3})?
        |"(?P<short>(?:[^"\\\n]|\\.)*+)"?
        |'(?P<other_short>(?:[^'\\\n]|\\.)*+)'?
    )""",
    re.VERBOSE | re.DOTALL,
)
"""A comment or a string of Python; an unclosed one ends with the text or the line."""


def parse(source: str) -> ast.Module:
    """The syntax tree.

    Raises SyntaxError, also for what Python refuses in another way and for f-strings that take too long.
    """
    if len(source) * source.count("{") > MOST_F_STRINGS:
        f_strings = (found[0] for found in literals(source) if is_f_string(found))
        if sum(len(one) * one.count("{") for one in f_strings) > MOST_F_STRINGS:
            raise SyntaxError("its f-strings have too many expressions; use shorter ones")
    try:
        return ast.parse(source)
    except (ValueError, RecursionError, MemoryError) as error:
        raise SyntaxError(str(error) or "it is nested too deeply") from None


def literals(source: str) -> Iterator[re.Match[str]]:
    """Comments and strings, without parsing the source; the groups but `prefix` have the text of a string."""
    return _LITERAL.finditer(source)


def is_f_string(literal: re.Match[str]) -> bool:
    """Whether a literal has expressions that Python parses."""
    return "f" in (literal["prefix"] or "").lower()
