"""One verdict's page: the diagnosis first, then the evidence, the source last."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from db.rows import Row
from grader.report.baselines import baseline_lines
from grader.report.profile import passes, peaks_line
from grader.report.site import names
from grader.report.site.charts import bound_axis, bound_chart
from grader.report.site.code import Diff, compare, highlight, numbered
from grader.report.site.figures import BoundShares
from grader.report.site.formats import times
from grader.report.site.pages import Frame, render, save
from grader.report.site.timing_charts import phases_chart, rounds_chart, seconds_chart
from grader.report.text import shown_variant
from grader.verdict.models import Verdict
from grader.verdict.profiles import CLAIM, COUNTED, Profile
from grader.verdict.stages import FigureTiming, StageStatus, TimingResult
from grader.verdict.value import Value

_SAME_RATIO = 0.005
"""Relative difference between a speedup and the ratio of the shown times that three shown digits hide."""


class Other(NamedTuple):
    """A submission for the same problem to compare with."""

    row: Row
    title: str
    """Its relation to the verdict, in words."""
    source: str


class VerdictPage(NamedTuple):
    """The input of one page, which may be sent to another process."""

    row: Row
    document: str
    """The stored JSON of the verdict."""
    source: str
    others: tuple[Other, ...]
    newer: int | None
    """The id of a newer verdict for the same source."""
    frame: Frame
    profile: Profile | None
    """None if there is none."""


def write_verdict(out: Path, page: VerdictPage) -> bool:
    """Write the page. Returns whether another version of the grader wrote the verdict."""
    verdict = Verdict.read(page.document)
    save(out / names.verdict_page(page.row.id), verdict_page(page, verdict))
    return verdict is None


def verdict_page(page: VerdictPage, verdict: Verdict | None) -> str:
    """The page; `verdict` is None if another version of the grader wrote it."""
    phases, baselines = list(_phases(verdict)), list(baseline_lines(_timing(verdict)))
    shares = _bound_shares(dict(phases))
    return render(
        "verdict.html",
        names.verdict_page(page.row.id),
        f"{page.row.name} on {page.row.problem}: {page.row.status.replace('_', ' ')}",
        frame=page.frame,
        row=page.row,
        verdict=verdict,
        newer=page.newer,
        phases=phases,
        phases_svg=_phases_svg(phases),
        rounds=_rounds(phases),
        baselines=baselines if len(baselines) > 1 else [],
        ratios_differ=list(_differing_ratios(phases)),
        bound_svg=bound_chart(shares, "bound") if shares else Markup(""),
        bound_axis=bound_axis(shares),
        seconds_svg=seconds_chart(verdict.seconds) if verdict else Markup(""),
        shown_variant=shown_variant(verdict.forward) if verdict else None,
        profile=page.profile,
        profiled=passes(page.profile),
        peaks_line=peaks_line,
        claim=CLAIM,
        counted=COUNTED,
        environment=_pairs(verdict.environment) if verdict else [],
        settings=_pairs(verdict.settings) if verdict else [],
        diffs=list(_diffs(page.source, page.others)),
        source=numbered(highlight(page.source)) if page.source else "",
    )


def _phases(verdict: Verdict | None) -> Iterator[tuple[str, FigureTiming]]:
    timing = _timing(verdict)
    for name in ("total", "forward", "backward"):
        phase: FigureTiming | None = getattr(timing, name)
        if phase is not None:
            yield name, phase


def _phases_svg(phases: Sequence[tuple[str, FigureTiming]]) -> Markup:
    drawn = [
        (name, phase)
        for name, phase in phases
        if all(math.isfinite(one) and one > 0 for one in (phase.speedup, phase.ci_low, phase.ci_high))
    ]
    return phases_chart(drawn) if drawn else Markup("")


def _timing(verdict: Verdict | None) -> TimingResult:
    return (verdict.timing if verdict else None) or TimingResult(status=StageStatus.SKIPPED)


def _differing_ratios(phases: Sequence[tuple[str, FigureTiming]]) -> Iterator[str]:
    """Yields a phrase for each phase whose speedup is not about the ratio of the two times beside it."""
    for name, phase in phases:
        ratio = phase.reference_ms / phase.candidate_ms if phase.candidate_ms > 0 else math.inf
        if math.isfinite(ratio) and abs(ratio - phase.speedup) > _SAME_RATIO * phase.speedup:
            yield f"{name} {times(ratio)} instead of {times(phase.speedup)}"


def _bound_shares(phases: dict[str, FigureTiming]) -> list[BoundShares]:
    """This verdict's shares of the roofline bound; empty if no bound is known."""
    shares = {
        name: phase.bound_ms / phase.candidate_ms
        for name, phase in phases.items()
        if phase.bound_ms and phase.candidate_ms > 0
    }
    return [BoundShares("this submission", shares.get("total"), shares.get("forward"))] if shares else []


def _rounds(phases: Sequence[tuple[str, FigureTiming]]) -> list[tuple[str, FigureTiming, Markup]]:
    return [
        (name, phase, rounds_chart(phase, name, f"rounds-chart-{name}"))
        for name, phase in phases
        if phase.candidate_samples_ms or phase.reference_samples_ms
    ]


def _diffs(source: str, others: Iterable[Other]) -> Iterator[tuple[Row, str, Diff]]:
    for other in others:
        yield other.row, other.title, compare(other.source, source)


def _pairs(value: Value) -> list[tuple[str, object]]:
    return list(value.model_dump(mode="json").items())
