"""Read-only files that are kept between gradings."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from grader.verdict.value import digest

log = logging.getLogger(__name__)
T = TypeVar("T")


def keep_file(path: Path, content: bytes) -> None:
    """Write a read-only file that appears whole.

    If it cannot be written, as on a full disk, a warning is logged: what it keeps can be made again.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=path.parent) as aside:
            file = Path(aside, path.name)
            file.write_bytes(content)
            file.chmod(0o400)
            file.replace(path)
    except OSError as error:
        log.warning("%s cannot be kept (%s); make room, or name another --build-cache", path, error.strerror)


class KeptValues(Generic[T]):
    """Values of one type, each in a JSON file of a folder."""

    def __init__(self, folder: Path, kind: str, values: TypeAdapter[T]) -> None:
        """`kind` is a part of the files' names."""
        self._folder, self._kind, self._values = folder, kind, values

    def get(self, key: str) -> T | None:
        """The value that was kept under the key; None without a file that has one."""
        try:
            return self._values.validate_json(self._path(key).read_bytes())
        except (OSError, ValidationError):
            return None

    def keep(self, key: str, value: T) -> None:
        """Keep the value under the key, if the disk takes it."""
        keep_file(self._path(key), self._values.dump_json(value))

    def _path(self, key: str) -> Path:
        return self._folder / f"{digest(key)}.{self._kind}.json"
