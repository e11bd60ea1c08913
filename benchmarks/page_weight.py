"""Prints the weight, first paint and size of the report's main pages, as Chromium measures them.

    python -m benchmarks.page_weight                1,000 made-up verdicts in a temporary folder
    python -m benchmarks.page_weight --db FILE      a database of your own

A desktop is 1440 pixels wide; a phone is 390 wide and has a CPU that is slowed down four times, as in Lighthouse. Each
figure is the median of five loads in a new window. A page is one file: it loads no font, script or image. Needs
Playwright, and chromium on PATH.
"""

from __future__ import annotations

import argparse
import gzip
import shutil
import tempfile
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser, sync_playwright

from benchmarks.pages import CHROMIUM_FLAGS, fill
from db import Store
from db.rows import read_rows
from grader.report.site import names, write_site
from grader.report.site.figures import devices

LOADS = 5
SCREENS = (("desktop", 1440, 900, 1), ("phone", 390, 844, 4))
"""(name, width, height, how many times slower the CPU is)."""

FIRST_PAINT = """() => new Promise((done) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint")[0];
  if (found) done(found.startTime);
}).observe({type: "paint", buffered: true}))"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--db", type=Path, help="a database; without it, 1,000 made-up verdicts")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        database = arguments.db or Path(temporary) / "made_up.db"
        if not arguments.db:
            fill(database, 1_000)
        out = Path(temporary) / "site"
        with Store.open(database, must_exist=True) as store:
            write_site(store, out)
            rows = read_rows(store)
        timed = next((row for row in reversed(rows) if row.total), rows[-1])
        pages = {
            "first page": names.INDEX,
            "list of verdicts": names.list_page(1),
            "matrix": names.matrix_page(devices(rows)[0].name),
            "problem": names.problem_page(timed.problem),
            "author": names.author_page(timed.author),
            "verdict": names.verdict_page(timed.id),
        }
        screens = " | ".join(f"first paint, {name}, ms" for name, *_ in SCREENS)
        print(f"| page | KB | KB, gzip | elements | {screens} |")
        print("| --- |" + " ---: |" * (3 + len(SCREENS)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
            for name, page in pages.items():
                print(line(browser, name, out / page), flush=True)
            browser.close()


def line(browser: Browser, name: str, page: Path) -> str:
    """A row of the table."""
    text = page.read_bytes()
    paints, elements = [], 0
    for _, width, height, slower in SCREENS:
        loads = [load(browser, page, width, height, slower) for _ in range(LOADS)]
        paints.append(median(paint for paint, _ in loads))
        elements = loads[0][1]
    figures = [f"{len(text) / 1e3:.0f}", f"{len(gzip.compress(text)) / 1e3:.0f}", f"{elements:,}"]
    return f"| {name} | " + " | ".join([*figures, *(f"{paint:.0f}" for paint in paints)]) + " |"


def load(browser: Browser, page: Path, width: int, height: int, slower: int) -> tuple[float, int]:
    """(milliseconds to the first contentful paint, number of elements) of one load in a new window."""
    context = browser.new_context(viewport={"width": width, "height": height})
    shown = context.new_page()
    context.new_cdp_session(shown).send("Emulation.setCPUThrottlingRate", {"rate": slower})
    shown.goto(page.as_uri(), wait_until="load")
    paint: float = shown.evaluate(FIRST_PAINT)
    elements: int = shown.evaluate("document.querySelectorAll('*').length")
    context.close()
    return paint, elements


if __name__ == "__main__":
    main()
