"""Starts a process that imports torch before the modules of a command are imported.

Workers are copies of that process. The imports of the command line, the database and torch go on beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

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
    from grader.sandbox import choose

    device = next((following for word, following in pairwise(words) if word == "--device"), "auto")
    with suppress(GraderError):
        worker_template.start_ahead(choose("auto"), device)
