"""Runs untrusted commands: what they may see, use and leave behind is decided here.

Three sides. The *keeper* is the grader's own process: trusted, it starts sandboxes, reads what they print, keeps the
clock and ends them. The *inner launcher* (`_inside.py`) is trusted code within the walls: it gives up the last
privileges and becomes the command. The *command* is untrusted, from its first instruction to its last child: nothing
it prints or returns is evidence of anything but itself.

A command may also be the copy of a process that has done a part of its work beforehand, outside: a *zygote*, trusted
like the keeper, and nothing untrusted ever comes near it.

A command that fails is an `Exit`. A sandbox that fails is a `SandboxError`, and says nothing about the command.
"""

from grader.sandbox._base import Sandbox
from grader.sandbox._choose import choose, probe
from grader.sandbox._mounts import gpu_devices
from grader.sandbox._process import SandboxedProcess
from grader.sandbox._values import Exit, Layer, Limits, Output
from grader.sandbox._zygote import Zygote

__all__ = [
    "Exit",
    "Layer",
    "Limits",
    "Output",
    "Sandbox",
    "SandboxedProcess",
    "Zygote",
    "choose",
    "gpu_devices",
    "probe",
]
