#!/usr/bin/env python3
"""Draw docs/images/architecture.svg, which package imports which, and list the order of imports in CONTRIBUTING.md.

    python -m scripts.architecture_picture

A row is a row of ORDER in tests/test_imports.py. An arrow is an import that no chain of other arrows implies.
"""

from __future__ import annotations

import re

from tests.test_imports import ORDER, ROOT, WORKER, files, imported, module_name, package

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PICTURE = ROOT / "docs" / "images" / "architecture.svg"
LEFT_OUT = {"grader", "grader._version", "grader.errors", "grader.__main__"}
"""The package root loads its names lazily, and every package imports the errors."""
BOX, ROW, WIDTH = (150, 34), 62, 800
"""Pixels: size of a box, distance between rows, width of the picture."""
CENTERS = {
    "grader.cli": 280, "grader.serve": 120, "grader.report": 120, "db": 120, "grader.pool": 420, "grader.api": 420,
    "grader.grading": 420, "grader.executor": 400, "grader.machine": 480, "grader.catalog": 280, "grader.sandbox": 480,
    "grader.verdict": 190, "grader.options": 360, "grader.protocol": 330, WORKER: 700,
}  # fmt: skip
"""Horizontal pixel of each box's center, 280 unless given, chosen so that arrows cross few boxes."""

Graph = dict[str, set[str]]
Places = dict[str, tuple[float, float]]


def graph() -> Graph:
    """The packages that each package imports."""
    found: Graph = {name: set() for row in (*ORDER, {WORKER}) for name in row - LEFT_OUT}
    for path in files():
        own = package(module_name(path))
        if own in found:
            found[own] |= {package(name) for name in imported(path)} & found.keys() - {own}
    return found


def reachable(imports: Graph, start: str) -> set[str]:
    """All packages that a chain of imports leads to."""
    seen: set[str] = set()
    ahead = [*imports[start]]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += imports[name]
    return seen


def reduced(imports: Graph) -> Graph:
    """The graph without the imports that a longer chain implies."""
    return {
        name: {one for one in others if not any(one in reachable(imports, other) for other in others - {one})}
        for name, others in imports.items()
    }


def places() -> Places:
    """The upper left corner of each box. The last row of ORDER is on top, the worker beside the executor."""
    found: Places = {}
    rows = [row - LEFT_OUT for row in reversed(ORDER)]
    for number, row in enumerate(row for row in rows if row):
        for name in row:
            found[name] = (CENTERS.get(name, 280) - BOX[0] / 2, 20.0 + number * ROW)
    found[WORKER] = (CENTERS[WORKER] - BOX[0] / 2, found["grader.executor"][1])
    return found


def picture() -> str:
    """The SVG."""
    at, arrows = places(), reduced(graph())
    height = max(y for _, y in at.values()) + BOX[1] + 20
    border = CENTERS[WORKER] - BOX[0] // 2 - 35
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}"'
        ' font-family="sans-serif" font-size="13">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#667"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height:g}" rx="8" fill="#fff"/>',
        f'<path d="M{border} 12V{height - 12:g}" stroke="#b33" stroke-dasharray="6 5"/>',
        f'<text x="{border + 12}" y="30" fill="#b33">untrusted: worker process</text>',
        f'<text x="{border + 12}" y="48" fill="#b33">in the sandbox</text>',
    ]
    for name in sorted(arrows):
        for other in sorted(arrows[name]):
            parts.append(_arrow(at[name], at[other]))
    for name, (x, y) in sorted(at.items()):
        fill, edge = ("#fdeeee", "#b33") if name == WORKER else ("#eef3fb", "#557")
        parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{BOX[0]}" height="{BOX[1]}" rx="5" fill="{fill}" stroke="{edge}"/>'
        )
        text = f'<text x="{x + BOX[0] / 2:g}" y="{y + 22:g}" text-anchor="middle" fill="#123">{name}</text>'
        parts.append(text)
    return "\n".join([*parts, "</svg>", ""])


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """A curve from the lower edge of one box to the upper edge of another."""
    x, y = start[0] + BOX[0] / 2, start[1] + BOX[1]
    to_x, to_y = end[0] + BOX[0] / 2, end[1]
    bend = (to_y - y) / 2
    curve = f"M{x:g} {y:g}C{x:g} {y + bend:g} {to_x:g} {to_y - bend:g} {to_x:g} {to_y:g}"
    return f'<path d="{curve}" fill="none" stroke="#667" marker-end="url(#tip)"/>'


def with_rows(text: str) -> str:
    """The text of CONTRIBUTING.md with the rows of ORDER as its list of packages."""
    rows = [", ".join(f"`{name}`" for name in sorted(row)) for row in ORDER]
    numbered = "".join(f"{number}. {row}\n" for number, row in enumerate(rows, 1))
    return re.sub(r"(?:^\d+\. `grader.*\n|^\d+\. `db`\n)+", numbered, text, count=1, flags=re.MULTILINE)


if __name__ == "__main__":
    PICTURE.write_text(picture())
    CONTRIBUTING.write_text(with_rows(CONTRIBUTING.read_text()))
