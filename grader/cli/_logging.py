"""Configures logging. Nothing is logged without --log-level or --log-file."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from pathlib import Path

from grader.errors import UserError

LEVELS = ("debug", "info", "warning", "error")
_STANDARD_FIELDS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def start_logging(level: str | None, file: Path | None) -> None:
    """Send the records of the logger `grader` to stderr, to a file, or to both.

    `level` None writes nothing to stderr; `file` None writes no file.
    Raises UserError for an unknown level or a file that cannot be written.
    """
    if level is not None and level.lower() not in LEVELS:
        raise UserError(f"--log-level {level}: choose {', '.join(LEVELS)}")
    logger = logging.getLogger("grader")
    logger.setLevel((level or "info").upper())
    if level is not None:
        shown = logging.StreamHandler()
        shown.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logger.addHandler(shown)
    if file is not None:
        try:
            kept = logging.FileHandler(file, encoding="utf-8")
        except OSError as error:
            raise UserError(f"--log-file {file}: cannot be written ({error.strerror})") from error
        kept.setFormatter(JsonLines())
        logger.addHandler(kept)


def _is_extra(name: str) -> bool:
    """Whether a record's field was given with it. Libraries that replace the record's class add private ones."""
    return name not in _STANDARD_FIELDS and not name.startswith("_")


class JsonLines(logging.Formatter):
    """A formatter that writes one JSON object per record.

    Fields: time, level, logger, message, the record's extra fields, and a traceback if there is one.
    """

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **{name: value for name, value in vars(record).items() if _is_extra(name)},
        }
        if record.exc_info:
            entry["traceback"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)
