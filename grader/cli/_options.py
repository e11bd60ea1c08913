"""Options that several commands share."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from grader.verdict.models import Device

DATABASE = "grader.db"

ProblemFolders = Annotated[
    list[Path] | None,
    typer.Option("--problems", metavar="DIR", help="Also offer the problems in this folder; may be repeated."),
]
Database = Annotated[str, typer.Option("--db", metavar="PATH|URL", help="Where verdicts are kept.")]


class DeviceChoice(StrEnum):
    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


class SandboxChoice(StrEnum):
    AUTO = "auto"
    BUBBLEWRAP = "bubblewrap"
    WEAK = "weak"


class Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class BoardChoice(StrEnum):
    TOTAL = "total"
    FORWARD = "forward"
    STRICT_FP32 = "strict-fp32"
    CPU = "cpu"


def device_of(choice: DeviceChoice) -> Device | None:
    """None for `auto`."""
    return None if choice is DeviceChoice.AUTO else Device(choice.value)
