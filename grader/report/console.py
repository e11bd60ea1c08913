"""Where text goes, and what of a stranger's text is let through to a terminal."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from rich.console import Console

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Everything that steers a terminal instead of being shown, newline and tab excepted."""

_WIDTH_IN_FILES = 200
"""Files have no width; wide enough that no table is cut."""


def clean(text: str) -> str:
    """Text from a submission or its compiler, without the power to move the cursor or to reverse the writing."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def console(stream: TextIO | None = None) -> Console:
    """A console on stdout or another stream that takes all text literally."""
    stream = stream or sys.stdout
    return Console(
        file=stream,
        markup=False,
        emoji=False,
        highlight=False,
        soft_wrap=False,
        width=None if stream.isatty() else _WIDTH_IN_FILES,
    )
