"""Consoles, tables, and the removal of control characters from foreign text."""

from __future__ import annotations

import re
import sys
from typing import TextIO

from rich.console import Console
from rich.table import Table

from grader.verdict.models import NO_DEVICE

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    r"\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
"""Control characters and separators except newline and tab, and characters that reorder text or are not seen. Joiners,
which emoji consist of, stay, and spaces of other widths."""

_WIDTH_IN_FILES = 200
"""Columns of output to a file, wide enough that no table is cut."""


def clean(text: str) -> str:
    """Foreign text without control characters, and without characters that reorder text or are not seen."""
    if text.isprintable():  # many times as fast, and most of a page's values are
        return text
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """A foreign name or message, cleaned, on one line: a line break is printed as `\\n`."""
    return clean(text).replace("\n", r"\n")


def device_text(device: str, name: str) -> str:
    """The name of a verdict's device, on one line."""
    return f"no {device} device" if name == NO_DEVICE else one_line(name)


def plain_table(*columns: str) -> Table:
    """An empty table without lines, with a header unless no columns are named."""
    table = Table(box=None, show_header=bool(columns), pad_edge=False, title_justify="left", caption_justify="left")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


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
