"""`grader report`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from db.read_only import open_to_read
from grader.cli._board_options import (
    Everything,
    Having,
    Introduction,
    Languages,
    OfPrecision,
    Title,
    Without,
    label_choice,
    site_frame,
)
from grader.cli._options import DATABASE, Database
from grader.verdict.precision import Precision


def report(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="An empty or new folder, or an earlier report.")],
    having: Having = None,
    without: Without = None,
    language: Languages = None,
    everything: Everything = False,
    precision: OfPrecision = Precision.FP32,
    title: Title = None,
    introduction: Introduction = None,
    db: Database = DATABASE,
) -> None:
    """Write a static site: status, leaderboards, each verdict.

    It has leaderboards, failures by code, fast_p, speedups, the roofline bound, and a page for each verdict,
    problem and author. The site needs no server and no network: open index.html, or publish the folder. Its boards,
    means, fast_p and shares of the roofline bound leave out copies of the reference, and what --having and
    --without leave out.

    \b
    Examples:
      grader report --out report/
      grader report --out report/ --db runs/grader.db
      grader report --out report/ --without vendor_library
      grader report --out report/ --title "Kernels of the week" --intro intro.txt
    """
    from grader.report.site import write_site

    labels, frame = label_choice(having, without, language, everything, precision), site_frame(title, introduction)
    with open_to_read(db) as store:
        written = write_site(store, out, labels, frame)
    if written.unreadable:
        print(
            f"{written.unreadable} verdicts written by another version of the grader are shown in short",
            file=sys.stderr,
        )
    print(f"{written.pages} pages; start at {written.index}")
