"""Verdicts for people: one line while grading, everything for `grader show`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from db.store import StoredVerdict
from grader.report.baselines import BaselineLine, baseline_lines
from grader.report.console import clean, device_text, one_line, plain_table
from grader.report.python_lexer import LONGEST_HIGHLIGHTED, LinearPythonLexer
from grader.report.rounds import clocks_table, samples_table, seconds_table
from grader.verdict.columns import SHOWN
from grader.verdict.models import Device, Diagnosis, Status, Verdict
from grader.verdict.stages import FigureTiming, ForwardResult, TensorCheck, TimingResult, VariantResult
from grader.verdict.value import Value

_STYLES = {Status.CORRECT: "green", Status.NOT_RUN: "yellow", Status.GRADER_ERROR: "magenta"}
_MARKS = {"error": ("✗", "red"), "warning": ("!", "yellow"), "info": ("i", "blue")}
SHOWN_KERNELS = 12
MOST_LINES = 10_000
"""Lines of a source that are printed. Laying out half a million short ones takes a minute."""


def verdict_line(verdict: Verdict) -> Text:
    """One line: status, submission, and the speedup or the first diagnosis."""
    status, rest = _line_parts(verdict)
    return Text.assemble((status, style_of(verdict.status)), rest)


def plain_line(verdict: Verdict) -> str:
    """The same, for a file: a batch of known verdicts prints tens of thousands."""
    return "".join(_line_parts(verdict))


def _line_parts(verdict: Verdict) -> tuple[str, str]:
    identity = f"#{verdict.verdict_id} " if verdict.verdict_id else ""
    rest = f"{identity}{one_line(verdict.submission)} on {verdict.device}: {one_line(_in_short(verdict))}"
    return f"{verdict.status:<18} ", rest


def tally(counts: Counter[Status], *, reused: int = 0, copied: int = 0, cancelled: int = 0) -> str:
    """One line: the number of verdicts with each status."""
    parts = ", ".join(f"{count} {status}" for status, count in counts.most_common())
    known = f" ({reused} from the database; --regrade grades again)" if reused else ""
    twins = f" ({copied} of a source that others in this batch have as well, graded once)" if copied else ""
    ended = f" ({cancelled} cancelled)" if cancelled else ""
    return f"{counts.total()} graded: {parts}{known}{twins}{ended}" if counts else f"nothing to grade{ended}"


def verdict_in_full(stored: StoredVerdict, *, timing: bool = False) -> RenderableType:
    """Diagnoses, evidence, source; with `timing` also every sample and clock reading."""
    return Group(*_parts(stored, timing))


# ---------------------------------------------------------------------------------------------------- one line


def _in_short(verdict: Verdict) -> str:
    if verdict.status is not Status.CORRECT and verdict.diagnoses:
        first = verdict.diagnoses[0]
        return f"{first.code}: {first.message}"
    timing = verdict.timing
    phase = timing and (timing.total or timing.forward)
    return _speedup(phase) if phase else "not timed"


def _speedup(phase: FigureTiming) -> str:
    return f"{phase.speedup:.3f}x [{phase.ci_low:.3f}, {phase.ci_high:.3f}] {phase.verdict}"


def style_of(status: Status) -> str:
    """The colour of a status."""
    return _STYLES.get(status, "red")


# ---------------------------------------------------------------------------------------------------- in full


def _parts(stored: StoredVerdict, timing: bool) -> Iterator[RenderableType]:
    verdict = stored.verdict
    yield Text.assemble(
        f"verdict {verdict.verdict_id}: ",
        (str(verdict.status), f"bold {style_of(verdict.status)}"),
        f"  {one_line(verdict.submission)} on {device_text(verdict.device, verdict.environment.device_name)}",
        f", {verdict.created_at:%Y-%m-%d %H:%M}",
    )
    for diagnosis in verdict.diagnoses:
        yield _diagnosis(diagnosis)
    yield from _section("Stages", _stages(verdict))
    yield from _section("Summary", _summary(verdict))
    yield from _section("Device memory, all processes together", _memory(verdict))
    yield from _section("Outputs", _outputs(verdict))
    yield from _section("Gradients", _checks(verdict.backward.gradients) if verdict.backward else None)
    yield from _section("Build log", _build_log(verdict))
    yield from _section("Timing", _timing(verdict.timing) if verdict.timing else None)
    yield from _section("Kernels", _kernels(verdict))
    yield from _section("Baselines", _against(verdict.timing) if verdict.timing else None)
    if timing and verdict.timing:
        yield from _section("Samples", samples_table(verdict.timing))
        yield from _section("Clocks", clocks_table(verdict.timing.clocks))
        yield from _section("Seconds per stage", seconds_table(verdict.seconds))
    yield from _section("Environment", _pairs(verdict.environment))
    yield from _section("Settings", _pairs(verdict.settings))
    yield from _section("Source", _source(clean(stored.submission_source)))


def _section(title: str, content: RenderableType | None) -> Iterator[RenderableType]:
    if content is not None:
        yield Text(f"\n{title}", style="bold")
        yield Padding(content, (0, 0, 0, 2), expand=False)


def _diagnosis(diagnosis: Diagnosis) -> RenderableType:
    mark, style = _MARKS[diagnosis.severity]
    lines = [Text.assemble((f"{mark} {diagnosis.code}", style), f" ({diagnosis.stage}): {one_line(diagnosis.message)}")]
    for key, value in diagnosis.detail.items():
        entries = value if key == "consequences" and isinstance(value, list) else [value]
        lines += [Text(_indented(f"{key}: {entry}"), style="dim") for entry in entries]
    return Group(*lines)


def _indented(text: str) -> str:
    """Text of several lines, none of which begins where a diagnosis begins."""
    return clean(f"    {text}").replace("\n", "\n      ")


def _summary(verdict: Verdict) -> Table | None:
    """The shown columns of `grader.verdict.columns` that this verdict has."""
    table = plain_table()
    for column in SHOWN:
        value = column.value(verdict)
        if value is not None and value != ():
            text = ", ".join(value) if isinstance(value, tuple) else _plain(value)
            table.add_row(column.name.replace("_", " "), one_line(text))
    return table if table.row_count else None


def _plain(value: str | int | float) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return _figure(value, 3) if isinstance(value, float) else str(value)


def _stages(verdict: Verdict) -> Table:
    table = plain_table("stage", "status", "seconds")
    seconds = verdict.seconds
    for name, stage, took in (
        ("build", verdict.build, seconds.build),
        ("forward", verdict.forward, seconds.forward),
        ("backward", verdict.backward, seconds.backward),
        ("timing", verdict.timing, seconds.timing),
    ):
        absent = "without a result" if took else "not reached"
        table.add_row(name, stage.status if stage else absent, f"{took:.1f}" if stage else "")
    return table


def _memory(verdict: Verdict) -> Text | None:
    if not verdict.peak_device_bytes:
        return None
    checks = verdict.backward and verdict.backward.peak_device_bytes
    until = f"{checks / 2**30:.1f} GiB until the end of the backward, " if checks else ""
    return Text(f"at most {until}{verdict.peak_device_bytes / 2**30:.1f} GiB in all")


def _kernels(verdict: Verdict) -> Table | None:
    """Kernels in one untimed pass, the largest share of the time first."""
    if not verdict.kernels:
        return None
    table = plain_table("operator" if verdict.device is Device.CPU else "kernel", "calls", "share")
    for use in verdict.kernels[:SHOWN_KERNELS]:
        table.add_row(one_line(use.name[:100]), str(use.calls), "" if use.share is None else f"{use.share:.1%}")
    return table


def _outputs(verdict: Verdict) -> Table | None:
    """The outputs of the first variant that failed, or of the first variant."""
    shown = shown_variant(verdict.forward)
    if shown is None:
        return None
    table = _checks(shown.tensors)
    if table is not None:
        table.caption = f"variant {one_line(shown.variant)}, seed {shown.seed}"
    return table


def shown_variant(forward: ForwardResult | None) -> VariantResult | None:
    """The first variant that failed, or the first one."""
    variants = forward.variants if forward else ()
    return next((one for one in variants if one.status == "failed"), next(iter(variants), None))


def _checks(checks: Iterable[TensorCheck]) -> Table | None:
    table = plain_table(
        "operand", "status", "relative error", "eager PyTorch", "worst index", "value", "expected", "why"
    )
    for check in checks:
        table.add_row(
            one_line(check.name),
            Text(check.status, style="red" if check.status in ("failed", "missing") else ""),
            _figure(check.rel_rms_error),
            _figure(check.baseline_rel_rms_error),
            "" if check.worst_index is None else str(list(check.worst_index)),
            _figure(check.worst_candidate, 6),
            _figure(check.worst_reference, 6),
            one_line(check.message or ""),
        )
    return table if table.row_count else None


def _timing(timing: TimingResult) -> Table | None:
    table = plain_table(
        "phase", "candidate ms", "reference ms", "speedup [95% interval]", "bound ms", "% of bound", "rounds", "clock"
    )
    for name in ("forward", "backward", "total"):
        phase: FigureTiming | None = getattr(timing, name)
        if phase:
            table.add_row(
                name,
                f"{phase.candidate_ms:.4f}",
                f"{phase.reference_ms:.4f}",
                _speedup(phase),
                _figure(phase.bound_ms, 4),
                "" if phase.bound_ms is None else f"{phase.bound_ms / phase.candidate_ms:.0%}",
                str(phase.rounds),
                phase.clock,
            )
    return table if table.row_count else None


def _against(timing: TimingResult) -> Table | None:
    """Times and speedups over each baseline, and over the fastest."""
    if not timing.baselines:
        return None
    table, lines = plain_table("baseline", "forward ms", "speedup", "total ms", "speedup"), list(baseline_lines(timing))
    for one in lines:
        table.add_row(one.name, *_against_cells(one, one))
    fastest = (next((one for one in lines if phase in one.best), lines[0]) for phase in ("forward", "total"))
    table.add_row("best", *_against_cells(*fastest))
    return table


def _against_cells(forward: BaselineLine, total: BaselineLine) -> list[str]:
    over_forward, over_total = ("" if over is None else f"{over:.3f}x" for over in (forward.forward, total.total))
    return [_figure(forward.forward_ms, 4), over_forward, _figure(total.total_ms, 4), over_total]


def _source(source: str) -> RenderableType | None:
    lines = source.split("\n", MOST_LINES)
    if len(lines) > MOST_LINES or len(source) > LONGEST_HIGHLIGHTED:
        left_out = len(source) - len(shown := "\n".join(lines[:MOST_LINES]))
        return Text(shown + (f"\n[{left_out} characters left out; `grader report` shows them]" if left_out else ""))
    return Syntax(source, LinearPythonLexer(), line_numbers=True, word_wrap=True) if source else None


def _build_log(verdict: Verdict) -> Text | None:
    log = verdict.build.log_tail.strip() if verdict.build else ""
    return Text(clean(log)) if log else None


# ------------------------------------------------------------------------------------------------------ tables


def _pairs(value: Value) -> Table:
    table = plain_table()
    for name, content in value.model_dump(mode="json").items():
        if content is not None:
            text = ", ".join(map(str, content)) if isinstance(content, list) else str(content)
            table.add_row(name.replace("_", " "), one_line(text))
    return table


def _figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}g}"
