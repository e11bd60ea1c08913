"""Rows that `benchmarks.kernelbench` writes: read, merged from several runs, summarized."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

Row = dict[str, Any]
COUNTS = {"faster", "slower"}
"""Verdicts on a figure that are wrong for a submission that is the reference."""
LONGEST = 5
"""Problems that the summary names for each stage."""


def rows(paths: Iterable[Path]) -> list[Row]:
    """The rows in these files, in order; none of a file that does not exist, nor a line that was cut off."""
    found = []
    for path in paths:
        for text in path.read_text().splitlines() if path.exists() else ():
            try:
                found.append(json.loads(text))
            except json.JSONDecodeError:
                continue
    return found


def key(row: Row) -> str:
    """The level and id of a row's problem."""
    return f"{row['level']}/{row['id']}"


def merged(found: Iterable[Row], commit: str | None) -> list[Row]:
    """One row for each problem: the first of this commit, so that nothing is run until it looks right, or the last."""
    chosen: dict[str, Row] = {}
    for row in found:
        before = chosen.get(key(row))
        if before is None or before.get("commit") != commit:
            chosen[key(row)] = row
    return list(chosen.values())


def known(found: Iterable[Row], commit: str | None) -> set[str]:
    """The problems that have a row of this commit; None: of any."""
    return {key(row) for row in found if commit in (None, row.get("commit"))}


def line(row: Row) -> str:
    """One row as a line of text."""
    stages = " ".join(f"{name[:4]}={seconds}" for name, seconds in row["stages"].items() if seconds >= 0.05)
    different = {name: figure for name, figure in row["figures"].items() if figure[0] in COUNTS}
    why = "" if row["status"] == "correct" else f" {row['codes'][:1]} {row['messages'][:1]}"
    jobs = sum(count for count, _ in row.get("jobs", {}).values())
    return (
        f"{row['level'][-1]} {row['id'][:44]:44} {row['status']:16} {row['s']:6.1f} s {row['device_gib']:6.1f} GiB "
        f"host {row['host_gib']:5.1f}  {jobs:4} jobs  {stages}{' ' + str(different) if different else ''}{why}"
    )


def table(graded: Sequence[Row], total: int) -> Iterator[str]:
    """Lines with counts, quantiles, the longest by stage, and the problems whose reference was not graded correct."""
    if not graded:
        return
    figures = [figure for row in graded for figure in row["figures"].values()]
    different = [figure for figure in figures if figure[0] in COUNTS]
    far = [figure for figure in different if not 0.99 <= figure[1] <= 1.01]
    yield f"\n{len(graded)} of {total} problems: {dict(Counter(row['status'] for row in graded))}"
    for run, count in Counter((row.get("commit"), row["machine"], row["date"][:10]) for row in graded).items():
        yield f"  {count} at {' on '.join(map(str, run))}"
    device, host = (max(row[column] for row in graded) for column in ("device_gib", "host_gib"))
    yield f"peak GiB: device {device:.1f}, host {host:.1f}"
    yield f"figures: {len(figures)}, called faster or slower {len(different)}, of these outside 1% {len(far)}"
    yield from longest(graded)
    for row in graded:
        if row["status"] != "correct":
            yield f"  {key(row)}: {row['status']}: {(row['messages'] or [''])[0]}"


def longest(graded: Sequence[Row]) -> Iterator[str]:
    """Median, 95th percentile and the longest problems, in seconds: of all, by stage, and of jobs by worker."""
    names = dict.fromkeys(name for row in graded for name in row["stages"])
    by_name = {"all": {key(row): row["s"] for row in graded}}
    by_name |= {name: {key(row): row["stages"].get(name, 0.0) for row in graded} for name in names}
    for name in dict.fromkeys(name for row in graded for name in row.get("jobs", {})):
        by_name[name] = {key(row): row.get("jobs", {}).get(name, (0, 0.0))[1] for row in graded}
    yield "seconds           median     95%     sum  longest"
    for name, seconds in by_name.items():
        ordered = sorted(seconds.values())
        worst = sorted(seconds.items(), key=lambda item: -item[1])[:LONGEST]
        shown = ", ".join(f"{problem.split('/')[1][:24]} {took:.1f}" for problem, took in worst)
        yield (f"{name:15} {statistics.median(ordered):8.2f} {percentile95(ordered):7.1f} {sum(ordered):7.0f}  {shown}")


def percentile95(ordered: Sequence[float]) -> float:
    """The 95th percentile of ordered values."""
    return ordered[int(0.95 * (len(ordered) - 1))]
