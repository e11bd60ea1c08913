"""Reads and writes files: paths that have to exist, sources, and a whole file in place of another."""

from __future__ import annotations

import difflib
import os
import tempfile
from pathlib import Path

from grader.errors import UserError, printable

MAX_SOURCE_BYTES = 1 << 20
"""Bytes of the largest source that is read. Hand-written and generated kernels have about 10 KB."""


def existing(path: Path) -> Path:
    """Returns the path. Raises UserError if it does not exist, with the nearest name as a suggestion."""
    if dangles(path):
        target = printable(path.readlink())
        raise UserError(f"{printable(path)}: a link to {target}, which does not exist; correct or remove the link")
    if not path.exists():
        beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, beside, n=1)
        suggestion = f"; did you mean {printable(path.parent / near[0])}?" if near else ""
        raise UserError(f"{printable(path)}: no such file or folder{suggestion}")
    if not (path.is_file() or path.is_dir()):
        raise UserError(f"{printable(path)}: neither a file nor a folder; give a .py file or a folder of them")
    return path


def real(path: Path) -> Path:
    """The absolute path without links; what remains of a loop of links."""
    return Path(os.path.realpath(path))


def dangles(path: Path) -> bool:
    """Whether the path is a link to something that does not exist."""
    return path.is_symlink() and not path.exists()


def read_source(path: Path) -> tuple[str, str | None]:
    """Returns (source, None), or ("", the reason why the file cannot be used).

    Raises UserError if the file cannot be opened.
    """
    try:
        size = path.stat().st_size
        if size > MAX_SOURCE_BYTES:
            return "", f"The file has {size} bytes; at most {MAX_SOURCE_BYTES} are read"
        source = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        return "", f"The file is not UTF-8: byte {error.object[error.start]:#04x} at offset {error.start}"
    except OSError as error:
        raise UserError(f"{printable(path)}: cannot be read ({error.strerror}); check its permissions") from error
    return usable(source, "file")


def is_text(text: str) -> bool:
    """Whether the text can be stored: a path of other bytes than UTF-8 has unpaired surrogates."""
    return not any("\ud800" <= one <= "\udfff" for one in text)


def usable(source: str, what: str = "source") -> tuple[str, str | None]:
    """Returns (source without a byte-order mark, None), or ("", the reason why it cannot be used)."""
    try:
        size = len(source.encode())
    except UnicodeEncodeError as error:
        return "", f"The {what} has an unpaired surrogate, {source[error.start]!a}, at offset {error.start}"
    if size > MAX_SOURCE_BYTES:
        return "", f"The {what} has {size} bytes; at most {MAX_SOURCE_BYTES} are read"
    return (source.removeprefix("\ufeff"), None) if source.strip() else ("", f"The {what} is empty")


def replace(path: Path, text: str) -> None:
    """Write a whole file, by a temporary one, so that no reader sees a part of it. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False, encoding="utf-8") as file:
        written = Path(file.name)
        try:
            file.write(text)
            file.flush()
            written.replace(path)
        except BaseException:
            written.unlink(missing_ok=True)
            raise
