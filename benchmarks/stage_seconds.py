"""Collects from the log where a grading's time goes: seconds by stage, jobs and their seconds by worker."""

from __future__ import annotations

import logging
from collections import defaultdict
from pathlib import Path
from types import TracebackType
from typing import Any

from grader.cli._logging import JsonLines

WORKERS = {"reference": "reference_jobs", "run": "submission_jobs"}
"""The name in a row of each kind of worker in the log."""


class StageLog(logging.Handler):
    """A context manager that reads the grader's log, and writes it to a file too, one JSON object a line.

    Stages are named as in `grader show`, but the second `start` of a grading is `reference`: it is constructed there,
    and makes the cases.
    """

    def __init__(self, file: Path | None = None) -> None:
        super().__init__(logging.DEBUG)
        self._file = logging.FileHandler(file, encoding="utf-8") if file else None
        if self._file:
            self._file.setFormatter(JsonLines())
        self._stages: defaultdict[str, float] = defaultdict(float)
        self._jobs: defaultdict[str, list[float]] = defaultdict(list)

    def __enter__(self) -> StageLog:
        logger = logging.getLogger("grader")
        self._level = logger.level
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        logger = logging.getLogger("grader")
        logger.removeHandler(self)
        logger.setLevel(self._level)
        if self._file:
            self._file.close()

    def emit(self, record: logging.LogRecord) -> None:
        """Note a stage or a job."""
        fields: dict[str, Any] = vars(record)
        stage, name = fields.get("stage"), WORKERS.get(fields.get("role", ""))
        if stage not in (None, "verdict"):
            self._stages["reference" if stage == "start" and stage in self._stages else stage] += fields["seconds"]
        if name is not None:
            self._jobs[name].append(fields["ms"] / 1e3)
        if self._file:
            self._file.emit(record)

    def take(self) -> dict[str, Any]:
        """The fields of a row since the last call: `stages` in seconds, `jobs` as [count, seconds] by worker."""
        stages = {name: round(seconds, 2) for name, seconds in self._stages.items()}
        jobs = {name: [len(times), round(sum(times), 2)] for name, times in self._jobs.items()}
        self._stages.clear()
        self._jobs.clear()
        return {"stages": stages, "jobs": jobs}
