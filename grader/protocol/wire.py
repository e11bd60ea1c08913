"""Messages as bytes: a length, then one JSON document."""

from __future__ import annotations

import struct

from pydantic import TypeAdapter, ValidationError

from grader.protocol.evidence import Evidence
from grader.protocol.steps import Job

CONTROL_FD = 3
"""The worker's end of the control socket."""

MAX_JOB_BYTES = 16 << 20
MAX_EVIDENCE_BYTES = 4 << 20
"""A longer evidence is a protocol violation; a verdict needs a few kilobytes."""

MAX_LISTED_ERRORS = 1000

HEADER = struct.Struct("<I")
"""Length of the JSON document that follows, in bytes."""

_JOB = TypeAdapter(Job)
_EVIDENCE = TypeAdapter(Evidence)


class MalformedMessage(ValueError):
    """The bytes are no message of this protocol."""


def encode(message: Job | Evidence) -> bytes:
    """Header and JSON document."""
    body = message.model_dump_json().encode()
    return HEADER.pack(len(body)) + body


def decode_job(body: bytes) -> Job:
    """Raises MalformedMessage."""
    try:
        return _JOB.validate_json(body)
    except ValidationError as error:
        raise MalformedMessage(_first_line(error)) from None


def decode_evidence(body: bytes) -> Evidence:
    """Raises MalformedMessage for anything but a well-formed, bounded evidence."""
    try:
        return _EVIDENCE.validate_json(body)
    except (ValidationError, RecursionError) as error:
        raise MalformedMessage(_first_line(error)) from None


def _first_line(error: Exception) -> str:
    if isinstance(error, ValidationError):
        if error.error_count() > MAX_LISTED_ERRORS:  # each would be made an object of
            return f"{error.error_count()} errors"
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"[:500]
    return str(error)[:500]
