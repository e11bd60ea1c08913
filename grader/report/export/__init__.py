"""Stored verdicts in the forms that other programs read."""

from db.choice import Choice, Chosen, chosen
from grader.report.export.flat import COLUMNS, csv_lines, flat, require_pyarrow, write_parquet
from grader.report.export.kernelbench import EvalResults, eval_results

__all__ = [
    "COLUMNS",
    "Choice",
    "Chosen",
    "EvalResults",
    "chosen",
    "csv_lines",
    "eval_results",
    "flat",
    "require_pyarrow",
    "write_parquet",
]
