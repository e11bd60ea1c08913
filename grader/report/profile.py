"""A profile as text, and its tables: the totals of both sides, then kernels and operators of each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from grader.report.console import one_line, plain_table
from grader.verdict.models import Device
from grader.verdict.profiles import CLAIM, COUNTED, Amount, KernelLine, PassLines, PeakRates, Profile, SideProfile

SHOWN = 16
"""Most kernels and operators in a table; JSON has more."""
NAME_CHARACTERS = 64
"""Longest name of a kernel in a table; JSON has it in full."""
PHASES = ("forward", "backward")
_RATES = ("GB/s", "TFLOP/s", "bound ms", "% of bound")
_LAUNCH = ("grid", "block", "registers", "shared", "local", "occupancy")


class Cells(NamedTuple):
    """One table. The first cell of a row is its name."""

    caption: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


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


def sides(profile: Profile) -> Iterator[tuple[str, SideProfile]]:
    """Yields the name and the profile of each side."""
    yield "submission", profile.candidate
    yield "reference", profile.reference


def passes(profile: Profile | None) -> list[tuple[str, list[Cells]]]:
    """(pass, its tables): the totals of both sides first."""
    found = []
    for phase in PHASES if profile is not None else ():
        assert profile is not None
        both = [(name, lines) for name, side in sides(profile) if (lines := getattr(side, phase)) is not None]
        if both:
            found.append((phase, [_totals(both), *_of_sides(both, profile.device)]))
    return found


def peaks_line(peaks: PeakRates) -> str:
    """The device's measured peaks in one line."""
    narrow = "" if peaks.narrow is None else f", {peaks.narrow / 1e12:.4g} in 16 bits or less"
    return (
        f"peaks measured here: {peaks.bytes / 1e9:.4g} GB/s; TFLOP/s: {peaks.float32 / 1e12:.4g} float32, "
        f"{peaks.tf32 / 1e12:.4g} TensorFloat-32{narrow}"
    )


def _totals(both: Iterable[tuple[str, PassLines]]) -> Cells:
    rows = [(name, f"{lines.ms:.4f}", f"{lines.calls:g}", *_rates(lines.work, lines.ms)) for name, lines in both]
    return Cells(
        "Both sides, one pass; the rates are of the work that the reference needs", _head("side", "kernels"), rows
    )


def _of_sides(both: Iterable[tuple[str, PassLines]], device: Device) -> Iterator[Cells]:
    for name, lines in both:
        yield _kernels(name, lines, device)
        if any(one.work.bytes for one in lines.operators):
            rows = [
                (one.name, f"{one.ms:.4f}", f"{one.calls}", f"{one.kernels}", *_rates(one.work, one.ms))
                for one in lines.operators[:SHOWN]
            ]
            yield Cells(f"PyTorch operators of the {name}", _head("operator", "calls", "kernels"), rows)


def _kernels(name: str, lines: PassLines, device: Device) -> Cells:
    """One row per kernel; without the columns of a GPU on the CPU."""
    on_gpu = device is not Device.CPU
    rows = []
    for one in lines.kernels[:SHOWN]:
        launch = _launch(one) if on_gpu else ()
        cells = (_share(one.ms, lines.ms), f"{one.calls:g}", *_rates(one.work, one.ms), *launch, one.operator)
        rows.append((one.name.removeprefix("void "), f"{one.ms:.4f}", *cells))
    left = lines.kernels[SHOWN:]
    heads = (*_head("kernel" if on_gpu else "operator", "share", "calls"), *(_LAUNCH if on_gpu else ()), "from")
    if left:
        ms, calls = sum(one.ms for one in left), sum(one.calls for one in left)
        rest = (f"{len(left)} more", f"{ms:.4f}", _share(ms, lines.ms), f"{calls:g}")
        rows.append((*rest, *[""] * (len(heads) - len(rest))))
    return Cells(f"{'Kernels' if on_gpu else 'Operators'} of the {name}", heads, rows)


def _head(first: str, *counts: str) -> tuple[str, ...]:
    return (first, "ms", *counts, *_RATES)


def _share(ms: float, total: float) -> str:
    return f"{ms / total:.1%}" if total > 0 else ""


def _rates(work: Amount | None, ms: float) -> tuple[str, str, str, str]:
    """Bandwidth, operations per second, bound and the share of it; empty where they are not known."""
    if work is None or ms <= 0:
        return "", "", "", ""
    rates = f"{work.bytes / ms / 1e6:.4g}", f"{work.operations / ms / 1e9:.3g}"
    return (*rates, f"{work.bound_ms:.4f}", f"{work.bound_ms / ms:.0%}") if work.bound_ms else (*rates, "", "")


def _launch(one: KernelLine) -> tuple[str, ...]:
    counts = ("" if value is None else str(value) for value in (one.registers, one.shared_bytes, one.local_bytes))
    occupancy = "" if one.occupancy is None else f"{one.occupancy:.0%}"
    return _extents(one.grid), _extents(one.block), *counts, occupancy


def _extents(value: tuple[int, int, int] | None) -> str:
    """`128x2`: without the ones at its end."""
    shown = list(value or ())
    while len(shown) > 1 and shown[-1] == 1:
        shown.pop()
    return "x".join(map(str, shown))
