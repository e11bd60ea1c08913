"""A profile as text."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from grader.report.console import one_line
from grader.report.profile_tables import Cells, passes, peaks_line, sides
from grader.report.text import plain_table
from grader.verdict.profiles import CLAIM, COUNTED, Profile

NAME_CHARACTERS = 64
"""Longest name of a kernel in a table; JSON has it in full."""


def profile_in_full(profile: Profile) -> RenderableType:
    """Everything that a person reads of a profile."""
    return Group(*_parts(profile))


def _parts(profile: Profile) -> Iterator[RenderableType]:
    what = f"{profile.submission} beside its reference on {profile.device_name}"
    yield Text(one_line(f"{what}, variant {profile.variant}, {profile.precision}"))
    yield Text(CLAIM, style="dim")
    yield Text(COUNTED, style="dim")
    if profile.peaks is not None:
        yield Text(peaks_line(profile.peaks))
    for name, side in sides(profile):
        if side.trouble:
            yield Text(f"{name}: {one_line(side.trouble)}", style="yellow")
    for phase, tables in passes(profile):
        yield Text(f"\n{phase}", style="bold")
        for cells in tables:
            yield Text(f"\n{cells.caption}")
            yield Padding(_table(cells), (0, 0, 0, 2), expand=False)


def _table(cells: Cells) -> RenderableType:
    table = plain_table(*cells.heads)
    for name, *rest in cells.rows:
        short = name if len(name) <= NAME_CHARACTERS else name[: NAME_CHARACTERS - 3] + "..."
        table.add_row(one_line(short), *map(one_line, rest))
    return table
