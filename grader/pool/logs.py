"""Carries what a process logs to the process that began it, whose handlers write it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping

LOGGER = "grader"


class Sender(logging.Handler):
    """Passes the attributes of each record on, as far as JSON has them."""

    def __init__(self, send: Callable[[dict[str, object]], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        """Send one record, with its message and traceback as text."""
        text = logging.Formatter().formatException(record.exc_info) if record.exc_info else None
        plain = {**vars(record), "msg": record.getMessage(), "args": None, "exc_info": None, "exc_text": text}
        self._send(json.loads(json.dumps(plain, default=str)))


def wanted_level() -> int | None:
    """The level from which on this process writes records; None if nothing would write them."""
    logger = logging.getLogger(LOGGER)
    return logger.getEffectiveLevel() if logger.handlers else None


def send_from(level: int | None, send: Callable[[dict[str, object]], None]) -> None:
    """Send records of at least `level` that this process logs from now on."""
    if level is not None:
        logger = logging.getLogger(LOGGER)
        logger.setLevel(level)
        logger.addHandler(Sender(send))


def write(attributes: Mapping[str, object]) -> None:
    """Have this process's handlers write a record that another one sent."""
    record = logging.makeLogRecord(dict(attributes))
    logging.getLogger(record.name).handle(record)
