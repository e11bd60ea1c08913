"""Quotes foreign text so that it can neither end its fence nor pass for the prompt's own words.

Foreign text is what a submission, its compiler or its output wrote, and every message that may quote them.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable

_FENCE = "````"
"""Ends only at a line with as many backticks (CommonMark); source seldom has more than three in a row."""
_CUT = "..."
_LONGEST_LINE = 240
"""Characters of a quoted line: two lines of a wide terminal."""

_MOST_READ = 10 * _LONGEST_LINE
"""Characters of a line that are looked at: escape sequences in it may shorten it."""
_MESSAGE_LINES = 12

_LONG_RUN = re.compile("```(?=`)")

_SPECIAL = re.compile(
    r"<\||\|>|<\N{FULLWIDTH VERTICAL LINE}|\N{FULLWIDTH VERTICAL LINE}>|<</?SYS>>|\[/?INST\]"
    r"|</?(?:s|bos|eos|pad|unk|think|tool_call|tool_response|start_of_turn|end_of_turn)>",
    re.IGNORECASE,
)
"""Control tokens of chat templates (ChatML, Llama, Mistral, DeepSeek, Gemma, Qwen), which some tokenizers read."""

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
"""ANSI escape sequences (ECMA-48), such as a compiler's colours."""


def tokens(text: str) -> int:
    """An upper estimate of a text's tokens: three ASCII characters, or one byte of others, are one."""
    size = len(text.encode("utf-8", errors="replace"))
    foreign = size - sum(character.isascii() for character in text)
    return foreign + -(-(size - foreign) // 3)


def cleaned(text: str) -> str:
    """The text on one line, without control characters and control tokens, cut."""
    text = _ESCAPE_SEQUENCE.sub("", text[:_MOST_READ]).replace("\t", "    ")
    text = "".join(character if character.isprintable() else " " for character in text).rstrip()
    text = _LONG_RUN.sub(f"{_FENCE[1:]} ", text)
    while text != (apart := _SPECIAL.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)):
        text = apart
    return text if len(text) <= _LONGEST_LINE else text[: _LONGEST_LINE - len(_CUT)] + _CUT


def wrapped(message: str) -> list[str]:
    """A message on lines of which none is cut; of a very long one, both ends: the remedy ends it."""
    lines = textwrap.wrap(message, _LONGEST_LINE // 2, break_on_hyphens=False)
    half = _MESSAGE_LINES // 2
    return lines if len(lines) <= _MESSAGE_LINES else [*lines[:half], _CUT, *lines[-half:]]


def fenced(lines: Iterable[str], room: int) -> str:
    """The lines, cleaned, in a fence that none of them can end; cut to `room` tokens. Empty if none fits."""
    kept: list[str] = []
    left = room - tokens(f"{_FENCE}\n\n{_FENCE}")
    for line in map(cleaned, lines):
        cost = tokens(f"{line}\n")
        if cost + tokens(_CUT) > left:
            kept += [_CUT] if kept else []
            break
        kept.append(line)
        left -= cost
    return "\n".join([_FENCE, *kept, _FENCE]) if kept else ""
