"""One verdict's page: the diagnosis first, then the evidence, the source last."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup
from pydantic import ValidationError

from db.rows import Row
from grader.report.profile_tables import passes, peaks_line
from grader.report.site import names
from grader.report.site.charts import bound_axis, bound_chart
from grader.report.site.code import Diff, compare, highlight, numbered
from grader.report.site.figures import BoundShares
from grader.report.site.formats import times
from grader.report.site.pages import STATIC, Frame, render, save
from grader.report.site.timing_charts import phases_chart, rounds_chart, seconds_chart
from grader.verdict.models import Verdict
from grader.verdict.profiles import CLAIM, COUNTED, Profile
from grader.verdict.stages import PhaseTiming, StageStatus, TimingResult, VariantResult
from grader.verdict.value import Value

_SAME_RATIO = 0.005
"""Relative difference between a speedup and the ratio of the shown times that three shown digits hide."""


class Other(NamedTuple):
    """A submission for the same problem to compare with."""

    row: Row
    title: str
    """Its relation to the verdict, in words."""
    source: str


class VerdictTask(NamedTuple):
    """The input of one page, which may be sent to another process."""

    out: Path
    row: Row
    document: str
    """The stored JSON of the verdict."""
    source: str
    others: tuple[Other, ...]
    newer: int | None
    """The id of a newer verdict for the same source."""
    frame: Frame
    profile: Profile | None = None


def write_verdict(task: VerdictTask) -> bool:
    """Write the page. Returns whether another version of the grader wrote the verdict."""
    verdict = read_verdict(task.document)
    page = verdict_page(task.row, verdict, task.source, task.others, task.newer, task.frame, task.profile)
    save(task.out / names.verdict_page(task.row.id), page)
    return verdict is None


def read_verdict(document: str) -> Verdict | None:
    """The verdict, or None if another version of the grader wrote it."""
    try:
        return Verdict.model_validate_json(document)
    except ValidationError:
        return None


def verdict_page(
    row: Row,
    verdict: Verdict | None,
    source: str,
    others: Iterable[Other],
    newer: int | None,
    frame: Frame = STATIC,
    profile: Profile | None = None,
) -> str:
    """The page; `verdict` is None if another version of the grader wrote it, `profile` if there is none."""
    phases = list(_phases(verdict))
    shares = _bound_shares(dict(phases))
    return render(
        "verdict.html",
        names.verdict_page(row.id),
        f"{row.name} on {row.problem}: {row.status.replace('_', ' ')}",
        frame=frame,
        row=row,
        verdict=verdict,
        newer=newer,
        phases=phases,
        phases_svg=_phases_svg(phases),
        rounds=_rounds(phases),
        baselines=list(_baselines(verdict, dict(phases))),
        ratios_differ=list(_differing_ratios(phases)),
        bound_svg=bound_chart(shares, "bound") if shares else Markup(""),
        bound_axis=bound_axis(shares),
        seconds_svg=seconds_chart(verdict.seconds, "seconds") if verdict else Markup(""),
        shown_variant=_shown_variant(verdict),
        profile=profile,
        profiled=passes(profile),
        peaks_line=peaks_line,
        claim=CLAIM,
        counted=COUNTED,
        environment=_pairs(verdict.environment) if verdict else [],
        settings=_pairs(verdict.settings) if verdict else [],
        diffs=list(_diffs(source, others)),
        source=numbered(highlight(source)) if source else "",
    )


def _phases(verdict: Verdict | None) -> Iterator[tuple[str, PhaseTiming]]:
    timing = _timing(verdict)
    for name in ("total", "forward", "backward"):
        phase: PhaseTiming | None = getattr(timing, name)
        if phase is not None:
            yield name, phase


def _phases_svg(phases: Sequence[tuple[str, PhaseTiming]]) -> Markup:
    drawn = [
        (name, phase)
        for name, phase in phases
        if all(math.isfinite(one) and one > 0 for one in (phase.speedup, phase.ci_low, phase.ci_high))
    ]
    return phases_chart(drawn, "phases") if drawn else Markup("")


class BaselineLine(NamedTuple):
    """Times of one way to run the reference, and the candidate's speedups over it."""

    name: str
    forward_ms: float | None
    forward: float | None
    """Speedup of the candidate's forward over it."""
    total_ms: float | None
    total: float | None
    best: set[str]
    """The phases (`forward`, `total`) in which this baseline is the fastest."""


def _baselines(verdict: Verdict | None, phases: dict[str, PhaseTiming]) -> Iterator[BaselineLine]:
    """Yields eager, then the other baselines; nothing if there are none.

    Eager's times are those of the baselines' run; where it has none, this verdict's own.
    """
    timed = {one.name: one for one in _timing(verdict).baselines}
    if not timed.keys() - {"eager"}:
        return
    forward, total, eager = phases.get("forward"), phases.get("total"), timed.pop("eager", None)
    eager_forward = eager.forward_ms if eager else forward.reference_ms if forward else None
    eager_total = eager.total_ms if eager else total.reference_ms if total else None
    known = [
        ("eager", eager_forward, eager_total),
        *((one.name.replace("_", " "), one.forward_ms, one.total_ms) for one in timed.values()),
    ]
    best_forward = min((ms for _, ms, _ in known if ms is not None), default=None)
    best_total = min((ms for _, _, ms in known if ms is not None), default=None)
    for name, forward_ms, total_ms in known:
        best = {
            phase
            for phase, ms, least in (("forward", forward_ms, best_forward), ("total", total_ms, best_total))
            if ms is not None and ms == least
        }
        over = _over(forward_ms, forward, eager_forward), _over(total_ms, total, eager_total)
        yield BaselineLine(name, forward_ms, over[0], total_ms, over[1], best)


def _timing(verdict: Verdict | None) -> TimingResult:
    return (verdict.timing if verdict else None) or TimingResult(status=StageStatus.SKIPPED)


def _over(baseline_ms: float | None, phase: PhaseTiming | None, eager_ms: float | None) -> float | None:
    """The speedup over eager PyTorch times baseline / eager, as boards have it."""
    return phase.speedup * baseline_ms / eager_ms if baseline_ms and phase and eager_ms else None


def _differing_ratios(phases: Sequence[tuple[str, PhaseTiming]]) -> Iterator[str]:
    """Yields a phrase for each phase whose speedup is not about the ratio of the two times beside it."""
    for name, phase in phases:
        ratio = phase.reference_ms / phase.candidate_ms if phase.candidate_ms > 0 else math.inf
        if math.isfinite(ratio) and abs(ratio - phase.speedup) > _SAME_RATIO * phase.speedup:
            yield f"{name} {times(ratio)} instead of {times(phase.speedup)}"


def _bound_shares(phases: dict[str, PhaseTiming]) -> list[BoundShares]:
    """This verdict's shares of the roofline bound; empty if no bound is known."""
    shares = {
        name: phase.bound_ms / phase.candidate_ms
        for name, phase in phases.items()
        if phase.bound_ms and phase.candidate_ms > 0
    }
    return [BoundShares("this submission", shares.get("total"), shares.get("forward"))] if shares else []


def _rounds(phases: Sequence[tuple[str, PhaseTiming]]) -> list[tuple[str, PhaseTiming, Markup]]:
    return [
        (name, phase, rounds_chart(phase, name, f"rounds-chart-{name}"))
        for name, phase in phases
        if phase.candidate_samples_ms or phase.reference_samples_ms
    ]


def _shown_variant(verdict: Verdict | None) -> VariantResult | None:
    """The first variant that failed, or the first one."""
    variants = verdict.forward.variants if verdict and verdict.forward else ()
    return next((one for one in variants if one.status == "failed"), next(iter(variants), None))


def _diffs(source: str, others: Iterable[Other]) -> Iterator[tuple[Row, str, Diff]]:
    for other in others:
        yield other.row, other.title, compare(other.source, source)


def _pairs(value: Value) -> list[tuple[str, object]]:
    return list(value.model_dump(mode="json").items())
