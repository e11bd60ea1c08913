"""A sandbox whose commands are a zygote's copies, for the conformance cases.

It is also the zygote's module: a copy runs Python source itself, and executes any other command.
"""

import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from grader.sandbox import CopyOf, Sandbox, SandboxedProcess, Zygote


class Copied(Sandbox):
    name = "copied"

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._zygote = Zygote(
            __name__.rpartition(".")[2], {"PYTHONPATH": os.pathsep.join([_folder(), *sys.path])}, gpu=False
        )
        self.layers = sandbox.layers

    def spawn(
        self,
        argv: Sequence[str],
        *,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        **options: Any,
    ) -> SandboxedProcess:
        arguments = [json.dumps(list(argv)), json.dumps(dict(environment or {})), json.dumps(list(pass_fds))]
        return self._sandbox.spawn(CopyOf(self._zygote, arguments), pass_fds=pass_fds, **options)


def main(*arguments: Any) -> None:
    *fds, argv, environment, wanted = arguments
    for fd, number in zip(fds, json.loads(wanted), strict=True):
        os.dup2(fd, number)
        if fd != number:
            os.close(fd)
    os.environ.update(json.loads(environment))
    command = json.loads(argv)
    if command[1:4] == ["-I", "-S", "-c"]:
        sys.argv = ["-c", *command[5:]]
        exec(command[4], {"__name__": "__main__"})
        return
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    os.execvp(command[0], command)


def _folder() -> str:
    return str(Path(__file__).parent)
