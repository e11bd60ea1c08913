"""The base of every value that the grader hands out, and the hash that names a text."""

from __future__ import annotations

import hashlib
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError


class Value(BaseModel):
    """A frozen record that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")

    @classmethod
    def read(cls, document: str | None) -> Self | None:
        """The value of a stored document; None without one, and if another version of the grader wrote it."""
        try:
            return None if document is None else cls.model_validate_json(document)
        except ValidationError:
            return None


def digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
