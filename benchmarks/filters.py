"""Measures the filtered list of `grader serve` with many verdicts.

    python -m benchmarks.filters                       200,000 verdicts in a temporary folder
    python -m benchmarks.filters --keep filters.d      keep the database there and use it again

The verdicts are those of `benchmarks.pages`, without the parts of their documents that lists do not read, and repeated.
Needs the extra `serve`.
"""

from __future__ import annotations

import argparse
import re
import sqlite3
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from benchmarks.pages import fill, server

MADE = 4_000
"""Verdicts that differ; the others are copies under other numbers."""
REPEATS = 7
QUERIES = (
    "",
    "status=missing_backward",
    "code=output_wrong",
    "problem=conv7_bias_residual_mul",
    "author=author07",
    "device=A+made-up+GPU",
    "status=correct&author=author07&device=A+made-up+GPU",
    "status=correct&page=500",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=200_000, help="verdicts in the database")
    parser.add_argument("--keep", type=Path, help="keep the database in this folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        database = folder / f"filters{arguments.count}.db"
        if not database.exists():
            fill(database, MADE)
            multiply(database, arguments.count)
        started = time.perf_counter()
        with server(database) as address:
            print(f"{arguments.count} verdicts: server ready in {time.perf_counter() - started:.1f} s")
            for query in QUERIES:
                print(line(f"{address}verdicts.html?{query}", query))


def multiply(database: Path, count: int) -> None:
    """Repeat the verdicts until there are `count`, without the parts of a document that no list reads."""
    connection = sqlite3.connect(database)
    connection.execute(
        "update verdicts set document = json_remove(document, '$.forward', '$.backward', '$.kernels', '$.settings',"
        " '$.timing.clocks', '$.timing.total.candidate_samples_ms', '$.timing.total.reference_samples_ms',"
        " '$.timing.forward.candidate_samples_ms', '$.timing.forward.reference_samples_ms')"
    )
    columns = [row[1] for row in connection.execute("pragma table_info(verdicts)") if row[1] != "id"]
    names = ", ".join(columns)
    while (known := connection.execute("select count(*) from verdicts").fetchone()[0]) < count:
        connection.execute(
            f"insert into verdicts ({names}) select {names} from verdicts order by id limit ?",
            (min(known, count - known),),
        )
    connection.commit()
    connection.close()


def line(address: str, query: str) -> str:
    """The median time of a request, and the count that the page shows."""
    took, text = [], ""
    for _ in range(REPEATS):
        started = time.perf_counter()
        with urllib.request.urlopen(address) as answer:
            text = answer.read().decode()
        took.append(time.perf_counter() - started)
    found = re.search(r"<b>(\d+)</b> of (\d+) verdicts", text)
    shown = f"{found[1]} of {found[2]}" if found else "no count"
    return f"{statistics.median(took) * 1e3:6.0f} ms  {shown:>18}  {query or '(no filter)'}"


if __name__ == "__main__":
    main()
