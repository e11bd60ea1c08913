"""`grader profile`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from db import Store
from db.profiles import save_profile
from grader.cli._catalog import offered
from grader.cli._options import DATABASE, Database, ProblemFolders, takes_grader_options
from grader.options import GraderOptions


class ProfileFormat(StrEnum):
    """Output formats of a profile."""

    TEXT = "text"
    JSON = "json"


@takes_grader_options(("device", "device_index", "variant", "sandbox", "precision", "strict_fp32", "build_cache"))
def profile(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="The submission: a Python file with a class ModelNew.")],
    problem_id: Annotated[
        str | None,
        typer.Option("--problem", metavar="ID|FILE", help="Profile for this problem, not the one in the file name."),
    ] = None,
    problems: ProblemFolders = None,
    db: Database = DATABASE,
    output: Annotated[
        ProfileFormat, typer.Option("--format", help="json: one object with every figure and the names in full.")
    ] = ProfileFormat.TEXT,
    *,
    options: GraderOptions,
) -> None:
    """Show a submission beside its reference, kernel by kernel.

    Both run in the sandbox, on the same inputs and with cold caches, under PyTorch's profiler. On a GPU each kernel has
    its grid, block, registers, shared and local memory and occupancy; on the CPU, PyTorch's operators are listed. The
    profile is a claim of the submission's process, which could forge it: it is stored beside the source's verdicts,
    whose pages show it, and changes none of them.

    \b
    Examples:
      grader profile my_kernel.py --problem conv2d_mul_leaky_relu_gelu
      grader profile ann/conv2d_mul_leaky_relu_gelu__v2.py --format json > profile.json
    """
    from grader.api import open_grader
    from grader.catalog.requests import RequestReader
    from grader.report.console import console
    from grader.report.json_csv import json_line
    from grader.report.profile import profile_in_full

    catalog = offered(problems)
    pair = RequestReader(catalog).resolve(path, None, problem_id)
    with Store.open(db) as store, open_grader(options) as grader:
        found = grader.profile(pair)
        save_profile(store, found)
    if output is ProfileFormat.JSON:
        print(json_line(found))
    else:
        console().print(profile_in_full(found))
