"""Begins what takes a grading command seconds, before the modules of the command are imported.

A process that workers will be copies of imports torch, while this one imports the command line, the database and
torch. Beside these imports, threads try the sandbox and load torch's libraries.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from threading import Thread

from grader.errors import GraderError

GRADES = ("grade", "profile")
"""Commands that start workers in any case."""
OTHERWISE = ("--help", "--sandbox", "--device-index", "--gpus", "--workers", "--ray")
"""Options with which there is no such process, or another one: it is started where they are read."""


def start_ahead(arguments: Sequence[str]) -> None:
    """Start the template of workers for a command with these arguments, if it will need one.

    It ends with this process. What is wrong with an argument or the machine is reported later, when it is needed.
    """
    words = [word for argument in arguments for word in argument.split("=", 1)]
    if not words or words[0] not in GRADES or set(words) & set(OTHERWISE):
        return
    from grader.executor import worker_template

    device = next((following for word, following in pairwise(words) if word == "--device"), "auto")
    with suppress(GraderError):
        worker_template.start_ahead(device)
        for work in (_try_sandbox, _load_libraries):
            Thread(target=work).start()


def _load_libraries() -> None:
    """Load torch's libraries, a fourth of the time of its import, in which other threads may run."""
    found = find_spec("torch")
    if found is not None and found.origin is not None:
        with suppress(OSError):  # a torch without them says so itself
            ctypes.CDLL(str(Path(found.origin).parent / "lib" / "libtorch_python.so"))


def _try_sandbox() -> None:
    """Try the sandbox, which takes as long as a module's import and hardly uses this process."""
    from grader.sandbox import choose

    with suppress(GraderError):
        choose("auto")
