"""One verdict's page: the diagnosis first, then what it rests on, the source last."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup
from pydantic import ValidationError

from grader.models import PhaseTiming, Value, VariantResult, Verdict
from grader.report.site import names
from grader.report.site.charts import phases_chart, rounds_chart
from grader.report.site.code import Diff, compare, highlight, numbered
from grader.report.site.pages import render, save
from grader.report.site.rows import Row


class Other(NamedTuple):
    """A submission for the same problem to compare with."""

    row: Row
    title: str
    """What it is to this one."""
    source: str


class VerdictTask(NamedTuple):
    """All that one page is made of; it may be sent to another process."""

    out: Path
    row: Row
    document: str
    """JSON of the verdict, as the database has it."""
    source: str
    others: tuple[Other, ...]
    newer: int | None
    """A newer verdict on the same text."""


def write_verdict(task: VerdictTask) -> bool:
    """Write the page. Returns whether another version of the grader wrote the verdict: little is shown of it then."""
    try:
        verdict = Verdict.model_validate_json(task.document)
    except ValidationError:
        verdict = None
    page = verdict_page(task.row, verdict, task.source, task.others, task.newer)
    save(task.out / names.verdict_page(task.row.id), page)
    return verdict is None


def verdict_page(row: Row, verdict: Verdict | None, source: str, others: Iterable[Other], newer: int | None) -> str:
    """The page; `verdict` is None where another version of the grader wrote it."""
    phases = list(_phases(verdict))
    return render(
        "verdict.html",
        names.verdict_page(row.id),
        f"{row.name} on {row.problem}: {row.status.replace('_', ' ')}",
        row=row,
        verdict=verdict,
        newer=newer,
        phases=phases,
        phases_svg=_phases_svg(phases),
        rounds=_rounds(phases),
        shown_variant=_shown_variant(verdict),
        environment=_pairs(verdict.environment) if verdict else [],
        settings=_pairs(verdict.settings) if verdict else [],
        diffs=list(_diffs(source, others)),
        source=numbered(highlight(source)) if source else "",
    )


def _phases(verdict: Verdict | None) -> Iterator[tuple[str, PhaseTiming]]:
    timing = verdict.timing if verdict else None
    for name in ("total", "forward", "backward"):
        phase: PhaseTiming | None = getattr(timing, name, None)
        if phase is not None:
            yield name, phase


def _phases_svg(phases: Sequence[tuple[str, PhaseTiming]]) -> Markup:
    drawn = [
        (name, phase)
        for name, phase in phases
        if all(math.isfinite(one) and one > 0 for one in (phase.speedup, phase.ci_low, phase.ci_high))
    ]
    return phases_chart(drawn, "phases") if drawn else Markup("")


def _rounds(phases: Sequence[tuple[str, PhaseTiming]]) -> list[tuple[str, PhaseTiming, Markup]]:
    return [
        (name, phase, rounds_chart(phase, name, f"rounds-chart-{name}"))
        for name, phase in phases
        if phase.candidate_samples_ms or phase.reference_samples_ms
    ]


def _shown_variant(verdict: Verdict | None) -> VariantResult | None:
    """The first that failed, else the first."""
    variants = verdict.forward.variants if verdict and verdict.forward else ()
    return next((one for one in variants if one.status == "failed"), next(iter(variants), None))


def _diffs(source: str, others: Iterable[Other]) -> Iterator[tuple[Row, str, Diff]]:
    for other in others:
        yield other.row, other.title, compare(other.source, source)


def _pairs(value: Value) -> list[tuple[str, object]]:
    return list(value.model_dump(mode="json").items())
