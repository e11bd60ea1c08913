"""Runs a measurement in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def ask(code: str, *arguments: object, environment: Mapping[str, str]) -> dict[str, Any]:
    """The last line that the code prints, as JSON. Exits with the end of its stderr if it fails."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=dict(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, arguments))}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
