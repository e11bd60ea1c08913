"""The columns of a verdict, declared once for the database, the exports, the API and `grader show`.

To add a column, add it to `COLUMNS`. A stored column needs a migration too, and a listed one a field of `db.rows.Row`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from grader.verdict.models import Device, Status, Verdict
from grader.verdict.precision import Precision
from grader.verdict.stages import FigureTiming

Cell = str | int | float | bool | None
Figure = str | int | float | bool | tuple[str, ...] | None


@dataclass(frozen=True)
class Column:
    """One column: where it comes from, and where it goes."""

    name: str
    kind: type
    """`str`, `int`, `float`, `bool`, an enumeration of texts, or `tuple` for a tuple of texts."""
    source: str | Callable[[Verdict], Figure]
    """Where it comes from: a path in `Verdict`, such as `forward.status`, or a function of the verdict."""
    description: str
    optional: bool = False
    """Whether it may be absent."""
    stored: Literal["verdicts", "environments"] | None = None
    """The table that has it beside the JSON document; None where only the document has it."""
    references: str | None = None
    """The foreign key of a stored column."""
    default: str | None = None
    """SQL literal for rows that were stored before the column was added."""
    index_position: int | None = None
    """Its place after the id in the index that boards are read from; None where it is not indexed."""
    exported: bool = False
    """Whether CSV and Parquet have it."""
    listed: bool = False
    """Whether lists of verdicts have it: the pages' rows and the API's `/api/verdicts`."""
    shown: bool = False
    """Whether the summary of `grader show` has it."""

    def value(self, verdict: Verdict) -> Figure:
        """Its value for a verdict; None where it, or a part on the way to it, is absent."""
        if not isinstance(self.source, str):
            return self.source(verdict)
        found: Any = verdict
        for name in self.source.split("."):
            found = None if found is None else getattr(found, name)
        value: Figure = found
        return value

    @property
    def cell_type(self) -> type:
        """`str`, `int`, `float` or `bool`: the type in a database or a flat file."""
        return self.kind if self.kind in (int, float, bool) else str


def iso_utc(moment: datetime) -> str:
    """ISO 8601 in UTC with microseconds: such text sorts as time does."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _phase_columns(phase: Literal["forward", "backward", "total"], first_index: int | None = None) -> Iterator[Column]:
    """Columns of one timed phase; with `first_index`, those that boards rank by are stored and indexed."""
    what = "forward and backward together" if phase == "total" else f"the {phase}"
    descriptions = {
        "candidate_ms": f"Median time of {what}, in milliseconds.",
        "reference_ms": f"Median time of {what} in eager PyTorch, in milliseconds.",
        "speedup": f"Speedup of {what} over eager PyTorch.",
        "ci_low": "Lower end of the speedup's 95% interval; ranks.",
        "ci_high": "Upper end of the speedup's 95% interval.",
        "bound_ms": f"Roofline bound of {what} on the device, in milliseconds.",
    }
    ranked = ("speedup", "ci_low", "ci_high")
    for name, description in descriptions.items():
        stored = name in ranked and first_index is not None
        yield Column(
            f"{phase}_{name}",
            float,
            f"timing.{phase}.{name}",
            description,
            optional=True,
            stored="verdicts" if stored else None,
            index_position=ranked.index(name) + (first_index or 0) if stored else None,
            exported=True,
        )
    if first_index is not None:
        yield Column(
            f"{phase}_bound_speedup",
            float,
            lambda verdict: _bound_speedup(verdict, phase),
            f"Speedup that {what} has at the roofline bound.",
            optional=True,
            stored="verdicts",
            index_position=first_index + len(ranked),
        )


def _bound_speedup(verdict: Verdict, phase: str) -> float | None:
    timing: FigureTiming | None = getattr(verdict.timing, phase) if verdict.timing else None
    return timing.reference_ms / timing.bound_ms if timing and timing.bound_ms else None


COLUMNS: tuple[Column, ...] = (
    Column("verdict_id", int, "verdict_id", "The verdict's number in its database.", exported=True),
    Column("created_at", str, lambda v: iso_utc(v.created_at), "When it was reached, ISO 8601 in UTC.",
           stored="verdicts", index_position=13, exported=True, listed=True),
    Column("problem", str, "problem", "The problem's id.",
           stored="verdicts", index_position=1, exported=True, listed=True),
    Column("author", str, "author", "Who submitted the source.",
           stored="verdicts", index_position=4, exported=True, listed=True),
    Column("label", str, "label", "The part of the file's name behind `__`.", optional=True,
           stored="verdicts", index_position=5, exported=True, listed=True),
    Column("sample", int, "sample", "Number among an author's samples for one problem.", optional=True,
           stored="verdicts", index_position=6, exported=True, listed=True),
    Column("device", Device, "device", "The kind of device that it was graded on.",
           stored="verdicts", index_position=3, exported=True, listed=True),
    Column("device_name", str, "environment.device_name", "The device's name.",
           stored="environments", exported=True, listed=True),
    Column("status", Status, "status", "The first question that the submission failed, or `correct`.",
           stored="verdicts", index_position=9, exported=True, listed=True),
    Column("code", str, lambda v: v.diagnoses[0].code if v.diagnoses else None, "Code of the first diagnosis.",
           optional=True, exported=True),
    Column("message", str, lambda v: v.diagnoses[0].message if v.diagnoses else None, "Message of the first diagnosis.",
           optional=True, exported=True),
    Column("labels", tuple, "labels", "Labels that inform and do not reject.",
           stored="verdicts", default="'[]'", index_position=14, exported=True, listed=True, shown=True),
    Column("build_status", str, "build.status", "Status of the build.",
           optional=True, exported=True),
    Column("forward_status", str, "forward.status", "Status of the forward's check.",
           optional=True, stored="verdicts", index_position=10, exported=True),
    Column("backward_status", str, "backward.status", "Status of the backward's check.",
           optional=True, stored="verdicts", exported=True),
    Column("timing_status", str, "timing.status", "Status of the timing.",
           optional=True, exported=True),
    Column("rel_rms_error", float, "forward.rel_rms_error",
           "Relative RMS error of the outputs, in the worst variant.", optional=True, exported=True, shown=True),
    Column("max_abs_error", float, "forward.max_abs_error",
           "Largest absolute error of an output's element.", optional=True, exported=True, shown=True),
    Column("passes_1e_4", bool, "forward.passes_1e_4",
           "Whether every output is within atol = rtol = 1e-4.", optional=True, exported=True, shown=True),
    Column("passes_1e_2", bool, "forward.passes_1e_2",
           "Whether every output is within atol = rtol = 1e-2.", optional=True, exported=True, shown=True),
    *_phase_columns("forward", first_index=21),
    *_phase_columns("backward"),
    *_phase_columns("total", first_index=17),
    Column("seconds", float, lambda v: sum(v.seconds.model_dump().values()), "Wall time of the grading, in seconds.",
           exported=True),
    Column("peak_device_bytes", int, "peak_device_bytes",
           "Peak of device memory of all processes together, in bytes; GPU only.", optional=True, exported=True),
    Column("variant", str, "settings.variant", "The only variant graded, where `--variant` asked for one.",
           optional=True, stored="verdicts", index_position=8, exported=True, listed=True),
    Column("quick", bool, "settings.quick", "Whether `--quick` was given.",
           stored="verdicts", index_position=11, exported=True, listed=True),
    Column("strict_fp32", bool, "settings.strict_fp32", "Whether it was timed with TensorFloat-32 off.",
           stored="verdicts", default="0", index_position=7, listed=True),
    Column("precision", Precision, "settings.precision", "Precision of model and inputs: fp32, tf32, bf16 or fp16.",
           stored="verdicts", default="'fp32'", index_position=25, exported=True, listed=True, shown=True),
    Column("sandbox", str, "environment.sandbox", "The sandbox that it ran in.",
           stored="verdicts", index_position=12, exported=True, listed=True),
    Column("torch_version", str, "environment.torch_version", "Version of PyTorch.", exported=True),
    Column("cuda_version", str, "environment.cuda_version", "Version of CUDA.", optional=True, exported=True),
    Column("driver_version", str, "environment.driver_version", "Version of the GPU's driver.",
           optional=True, exported=True),
    Column("grader_version", str, "environment.grader_version", "Version of the grader.", exported=True),
    Column("source_hash", str, "source_hash", "SHA-256 of the submission's source.",
           stored="verdicts", references="sources.hash", index_position=15, exported=True, listed=True, shown=True),
    Column("problem_hash", str, "problem_hash", "SHA-256 of the problem's source.",
           stored="verdicts", references="problems.hash", index_position=2, exported=True, listed=True, shown=True),
    Column("environment_hash", str, "environment.environment_hash", "SHA-256 of the environment.",
           stored="verdicts", references="environments.hash", index_position=16),
    Column("settings_hash", str, "settings.settings_hash", "SHA-256 of the settings.", stored="verdicts"),
)  # fmt: skip
"""In the order of the exports. Names of stored and exported columns are a format that others read."""

STORED = tuple(column for column in COLUMNS if column.stored == "verdicts")
EXPORTED = tuple(column for column in COLUMNS if column.exported)
LISTED = tuple(column for column in COLUMNS if column.listed)
SHOWN = tuple(column for column in COLUMNS if column.shown)
