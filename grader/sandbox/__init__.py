"""Runs untrusted commands, and decides what they may see, use and leave behind.

There are three parties. The *keeper* is the grader's own process: it is trusted, starts sandboxes, reads their output,
enforces their time limits and ends them. The *inner launcher* (`_inside.py`) is trusted code inside the sandbox: it
gives up the last privileges and becomes the command. The *command* is untrusted, from its first instruction to its last
child process: its output and exit status are evidence of nothing but themselves.

A command can also be a copy of a *zygote*: a trusted process outside that has done part of the work, such as imports.
A zygote never runs untrusted code.

A command that fails is an `Exit`. A sandbox that fails is a `SandboxError`, which says nothing about the command.
"""

from grader.sandbox._base import Sandbox
from grader.sandbox._choose import choose, probe
from grader.sandbox._mounts import gpu_devices
from grader.sandbox._process import SandboxedProcess
from grader.sandbox._values import PYTHON, Exit, Layer, Limits, Output
from grader.sandbox._zygote import CopyOf, Zygote

__all__ = [
    "PYTHON",
    "CopyOf",
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
