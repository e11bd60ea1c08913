"""Problem folders registered by `grader problems add`, in a JSON file of the user's configuration."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from grader.catalog.files import replace
from grader.errors import UserError

VARIABLE = "GRADER_PROBLEMS"
"""Environment variable that names another file."""


def registry() -> Path:
    """The file: `$GRADER_PROBLEMS`, else `grader/problems.json` in `$XDG_CONFIG_HOME` or ~/.config."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "grader" / "problems.json"


def remembered() -> list[Path]:
    """The folders, in the order in which they were added. Raises UserError for a damaged file."""
    path = registry()
    try:
        folders = json.loads(path.read_text())["folders"]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
    except (ValueError, KeyError, TypeError):
        folders = None
    if not isinstance(folders, list) or not all(isinstance(folder, str) for folder in folders):
        raise UserError(f'{path}: not {{"folders": ["DIR", ...]}}; correct it, or delete it')
    return [Path(folder) for folder in folders]


def remember(folder: Path) -> bool:
    """Add a folder by its full path. Returns False if it is remembered already."""
    folders = remembered()
    if folder.resolve() in folders:
        return False
    _write([*folders, folder.resolve()])
    return True


def forget(folder: Path) -> None:
    """Remove a folder, which need not exist. Raises UserError if it is not remembered."""
    folders = remembered()
    if folder.resolve() not in folders:
        raise UserError(f"{folder}: not remembered; remembered are: {', '.join(map(str, folders)) or 'none'}")
    _write([one for one in folders if one != folder.resolve()])


def _write(folders: Sequence[Path]) -> None:
    path = registry()
    text = json.dumps({"folders": [str(folder) for folder in folders]}, indent=2) + "\n"
    try:
        replace(path, text)
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror}); {VARIABLE} names another file") from error
