"""Writes the documentation's page on KernelBench's problems from the rows that `benchmarks.kernelbench` collected."""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.kernelbench_rows import COUNTS, Row, percentile95
from benchmarks.kernelbench_rows import key as named

LIMIT_GIB = 76.0
"""Device memory that a problem should stay below, so that a device of 80 GB grades it like a larger one."""
PLACE = re.compile(r"\S*/(?=level\d/)")
"""Where this machine keeps the checkout, in a message."""


def write_page(rows: Sequence[Row], path: Path) -> None:
    """Write the page as Markdown."""
    path.write_text("\n".join(page(rows)) + "\n")


def page(rows: Sequence[Row]) -> Iterator[str]:
    """The page's lines."""
    yield "# KernelBench's problems, graded against themselves"
    yield ""
    yield (
        "Each reference of KernelBench (423217d, levels 1 to 3, unchanged, at full size) is graded with `--quick` as a "
        "submission for its own problem. It should be `correct`, and as fast as itself. This page is made by"
    )
    yield ""
    yield "<!-- not run: needs a GPU and a checkout -->"
    yield ""
    yield "    python -m benchmarks.kernelbench --checkout DIR --out rows.jsonl --page docs/reference/kernelbench.md"
    yield ""
    yield "| | |"
    yield "| --- | --- |"
    for name, value in summary(rows).items():
        yield f"| {name} | {value} |"
    yield ""
    yield from section(
        "Not correct",
        "Problems whose reference was not graded `correct`, with the first diagnosis.",
        {named(row): f"`{row['status']}`: {first(row)}" for row in rows if row["status"] != "correct"},
    )
    yield from section(
        "Graded in part",
        "The reference itself cannot do more, or the device's memory is too short for it.",
        {named(row): limit for row in rows if row["status"] == "correct" for limit in limits(row)},
    )
    yield from section(
        "Called faster or slower",
        "Figures of a submission that is the reference. Each should be `same`, or `inconclusive`.",
        {
            f"{named(row)}, {figure}": f"{values[0]}, {values[1]:.3f} [{values[2]:.3f}, {values[3]:.3f}]"
            for row in rows
            for figure, values in row["figures"].items()
            if values[0] in COUNTS
        },
    )
    yield from section(
        f"More than {LIMIT_GIB:g} GiB of device memory",
        "All processes together, while the problem was graded.",
        {named(row): f"{row['device_gib']:.0f} GiB" for row in rows if row["device_gib"] > LIMIT_GIB},
    )


def summary(rows: Sequence[Row]) -> dict[str, str]:
    """The table's lines by name."""
    seconds = sorted(row["s"] for row in rows)
    figures = [figure for row in rows for figure in row["figures"].values()]
    verdicts = Counter(figure[0] for figure in figures)
    return {
        "machine": ", ".join(sorted({row["machine"] for row in rows})),
        "date and commit": ", ".join(
            sorted({f"{row['date'][:10]} {row.get('commit', row['version'])}" for row in rows})
        ),
        "problems": f"{len(rows)} of 250",
        "verdicts": ", ".join(f"{count} `{status}`" for status, count in Counter(r["status"] for r in rows).items()),
        "seconds a problem": f"median {statistics.median(seconds):.1f}, 95th percentile "
        f"{percentile95(seconds):.1f}, in all {sum(seconds):.0f}",
        "memory, all processes": f"device at most {max(row['device_gib'] for row in rows):.0f} GiB, "
        f"host at most {max(row['host_gib'] for row in rows):.1f} GiB",
        "figures": ", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()),
    }


def section(title: str, text: str, entries: dict[str, str]) -> Iterator[str]:
    """A heading with a table; nothing if there are no entries."""
    if not entries:
        return
    yield f"## {title}"
    yield ""
    yield text
    yield ""
    yield "| problem | |"
    yield "| --- | --- |"
    for name, value in sorted(entries.items()):
        yield f"| {name} | {value.replace('|', '/')} |"
    yield ""


def first(row: Row) -> str:
    """The row's first message."""
    return str((row["messages"] or ["no diagnosis"])[0])


def limits(row: Row) -> list[str]:
    """What was left out because neither reference nor device can do it; sizes that are graded on fewer rows are not."""
    return [
        PLACE.sub("", message)
        for code, message in zip(row["codes"], row["messages"], strict=True)
        if code == "checks_left_out" and ("differentiated" in message or "memory is too short" in message)
    ]
