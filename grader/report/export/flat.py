"""One row a verdict, for spreadsheets and data frames: CSV and Parquet with the same columns."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import BinaryIO, Final

from grader.errors import UserError
from grader.verdict.models import PhaseTiming, Verdict

Cell = str | int | float | bool | None

_PHASES = ("forward", "backward", "total")
_FIGURES = ("candidate_ms", "reference_ms", "speedup", "ci_low", "ci_high", "bound_ms")
COLUMNS: Final[Mapping[str, type]] = {
    "verdict_id": int,
    "created_at": str,
    "problem": str,
    "author": str,
    "label": str,
    "sample": int,
    "device": str,
    "device_name": str,
    "status": str,
    "code": str,
    "message": str,
    "labels": str,
    "build_status": str,
    "forward_status": str,
    "backward_status": str,
    "timing_status": str,
    "rel_rms_error": float,
    "max_abs_error": float,
    "passes_1e_4": bool,
    "passes_1e_2": bool,
    **{f"{phase}_{figure}": float for phase in _PHASES for figure in _FIGURES},
    "seconds": float,
    "peak_device_bytes": int,
    "variant": str,
    "quick": bool,
    "sandbox": str,
    "torch_version": str,
    "cuda_version": str,
    "driver_version": str,
    "grader_version": str,
    "source_hash": str,
    "problem_hash": str,
}
"""Name and type of each column; any but the verdict's own name and place may be empty. `code` and `message` are the
first diagnosis', times are in milliseconds, `seconds` is the wall time of the grading."""

_ROWS_IN_A_GROUP = 10_000


def flat(verdict: Verdict) -> dict[str, Cell]:
    """A verdict as a row of `COLUMNS`; absent is None."""
    first = verdict.diagnoses[0] if verdict.diagnoses else None
    forward, environment = verdict.forward, verdict.environment
    return {
        "verdict_id": verdict.verdict_id,
        "created_at": verdict.created_at.isoformat(),
        "problem": verdict.problem,
        "author": verdict.author,
        "label": verdict.label,
        "sample": verdict.sample,
        "device": str(verdict.device),
        "device_name": environment.device_name,
        "status": str(verdict.status),
        "code": first and first.code,
        "message": first and first.message,
        "labels": " ".join(verdict.labels),
        "build_status": verdict.build and str(verdict.build.status),
        "forward_status": forward and str(forward.status),
        "backward_status": verdict.backward and str(verdict.backward.status),
        "timing_status": verdict.timing and str(verdict.timing.status),
        "rel_rms_error": forward and forward.rel_rms_error,
        "max_abs_error": forward and forward.max_abs_error,
        "passes_1e_4": forward and forward.passes_1e_4,
        "passes_1e_2": forward and forward.passes_1e_2,
        **{f"{phase}_{figure}": _figure(verdict, phase, figure) for phase in _PHASES for figure in _FIGURES},
        "seconds": sum(verdict.seconds.model_dump().values()),
        "peak_device_bytes": verdict.peak_device_bytes,
        "variant": verdict.settings.variant,
        "quick": verdict.settings.quick,
        "sandbox": environment.sandbox,
        "torch_version": environment.torch_version,
        "cuda_version": environment.cuda_version,
        "driver_version": environment.driver_version,
        "grader_version": environment.grader_version,
        "source_hash": verdict.source_hash,
        "problem_hash": verdict.problem_hash,
    }


def csv_lines(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """The header, then a line a verdict, each with its newline."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(COLUMNS), lineterminator="\n")
    writer.writeheader()
    for verdict in verdicts:
        yield _taken(text)
        writer.writerow(flat(verdict))
    yield _taken(text)


def require_pyarrow() -> None:
    """Raise UserError where Parquet cannot be written, before a file is opened for it."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise UserError("Parquet needs pyarrow; pip install 'kernel-grader[parquet]', or use --format csv") from error


def write_parquet(verdicts: Iterable[Verdict], out: BinaryIO) -> None:
    """Write the rows with typed columns."""
    import pyarrow
    import pyarrow.parquet

    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[of]) for name, of in COLUMNS.items()])
    with pyarrow.parquet.ParquetWriter(out, schema) as writer:
        for rows in _groups(map(flat, verdicts)):
            writer.write_table(pyarrow.Table.from_pylist(rows, schema))


def _groups(rows: Iterable[dict[str, Cell]]) -> Iterator[list[dict[str, Cell]]]:
    rows = iter(rows)
    while group := list(islice(rows, _ROWS_IN_A_GROUP)):
        yield group


def _figure(verdict: Verdict, phase: str, figure: str) -> float | None:
    timing: PhaseTiming | None = getattr(verdict.timing, phase) if verdict.timing else None
    found: float | None = getattr(timing, figure) if timing else None
    return found


def _taken(text: io.StringIO) -> str:
    line = text.getvalue()
    text.seek(0)
    text.truncate()
    return line
