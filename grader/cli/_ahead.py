"""Starts a process that imports torch before the modules of a command are imported.

Workers are copies of that process. The imports of the command line, the database and torch go on beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from grader.errors import GraderError

GRADES = ("grade", "profile")
"""Commands that start workers in any case."""
OTHERWISE = ("--help", "--sandbox", "--device-index", "--gpus", "--workers", "--ray")
"""Options with which there is no such process, or another one: it is started where they are read."""
DEVICE = "--device"


def start_ahead(arguments: Sequence[str]) -> None:
    """Start the template of workers for a command with these arguments, if it will need one.

    It ends with this process. What is wrong with an argument or the machine is reported later, when it is needed.
    """
    options = {argument.partition("=")[0] for argument in arguments}
    if not arguments or arguments[0] not in GRADES or options & set(OTHERWISE):
        return
    from grader.executor import worker_template
    from grader.sandbox import choose

    given = [*arguments, ""]
    device = next((given[at + 1] for at, argument in enumerate(arguments) if argument == DEVICE), "auto")
    device = next((of.partition("=")[2] for of in arguments if of.startswith(f"{DEVICE}=")), device)
    with suppress(GraderError):
        worker_template.start_ahead(choose("auto"), device)
