"""Consoles, and the removal of characters from foreign text that would steer a terminal or a reader."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from rich.console import Console

BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that reorder the text around them, as part of a regular expression's set."""

_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f{BIDIRECTIONAL}]")
"""Everything that steers a terminal instead of being shown, newline and tab excepted."""

_LINE_BREAK = re.compile("[\n\u2028\u2029]")

_WIDTH_IN_FILES = 200
"""Columns; files have no width, and this is wide enough that no table is cut."""


def clean(text: str) -> str:
    """Text from a submission or its compiler, unable to move the cursor or to reverse the writing."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A foreign name or message, cleaned, on one line: a line break is printed as `\\n`."""
    return _LINE_BREAK.sub(r"\\n", clean(text))


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout or another stream that prints all text literally."""
    stream = stream or sys.stdout
    return Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
        width=None if stream.isatty() else _WIDTH_IN_FILES,
    )
