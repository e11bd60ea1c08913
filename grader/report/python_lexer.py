"""A lexer for Python that takes time linear in the source, whatever the source is.

Pygments' own takes quadratic time for some, such as a megabyte of blank lines: hours, for `grader show` and for a page.
"""

from __future__ import annotations

import keyword
import re

from pygments.lexer import RegexLexer, words
from pygments.token import Comment, Keyword, Name, Number, Operator, String, Text

LONGEST_HIGHLIGHTED = 200_000
"""Characters; a longer source is shown without highlighting, which takes microseconds for each."""

_STRING = r"(?:[rRbBuUfF]{1,2})?"


class LinearPythonLexer(RegexLexer):  # type: ignore[misc]  # pygments has no types
    """Comments, strings, numbers, keywords, decorators, and names that are defined or called.

    No expression reads a stretch twice: repetitions are possessive, and an unclosed string ends with its line or, in
    three quotes, with the text.
    """

    name = "Python, in linear time"
    flags = re.MULTILINE
    tokens = {  # noqa: RUF012  # pygments' own form
        "root": [
            (r"\s++", Text),
            (r"#[^\n]*+", Comment),
            (_STRING + r'"""(?:[^"\\]|\\[\s\S]|"(?!""))*+(?:""")?', String),
            (_STRING + r"'''(?:[^'\\]|\\[\s\S]|'(?!''))*+(?:''')?", String),
            (_STRING + r'"(?:[^"\\\n]|\\[\s\S])*+"?', String),
            (_STRING + r"'(?:[^'\\\n]|\\[\s\S])*+'?", String),
            (r"@[ \t]*+[\w.]++", Name.Decorator),
            (r"\d[\w.]*+", Number),
            (words(("and", "in", "is", "not", "or"), suffix=r"\b"), Operator.Word),
            (words(sorted(keyword.kwlist), suffix=r"\b"), Keyword),
            (r"(?<=def )\w++", Name.Function),
            (r"(?<=class )\w++", Name.Class),
            (r"\w++", Name),
            (r"[^\s\w#\"'@]++|.", Text),
        ]
    }
