"""Arguments that are no tensors, as JSON."""

from __future__ import annotations

from typing import Any


def encode_value(value: object) -> Any:
    """An argument as JSON: tuples and dictionaries tagged, tensors left to the caller's regions.

    Raises TypeError for anything but None, bool, int, float, str, lists, tuples and dictionaries with string keys.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, list):
        return [encode_value(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [encode_value(item) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: encode_value(item) for key, item in value.items()}}
    raise TypeError(f"a {type(value).__name__} cannot be sent to a worker as an argument")


def decode_value(value: Any) -> Any:
    """The inverse of `encode_value`."""
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if isinstance(value, dict):
        ((tag, content),) = value.items()
        if tag == "float":
            return float.fromhex(content)
        if tag == "tuple":
            return tuple(decode_value(item) for item in content)
        return {key: decode_value(item) for key, item in content.items()}
    return value
