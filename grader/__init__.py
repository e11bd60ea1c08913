"""Checks and benchmarks untrusted GPU kernels, such as LLM-generated ones.

    from grader import grade

    verdict = grade("my_kernel.py", problem="conv2d_mul_leaky_relu_gelu")

Names are loaded when they are first used: `import grader` is quick, `from grader import grade` does not import torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

from grader._version import __version__ as __version__

if TYPE_CHECKING:
    from grader.api import Grader, grade
    from grader.catalog.requests import Work
    from grader.client import AsyncClient, Client
    from grader.errors import GraderError, UserError
    from grader.options import GraderOptions
    from grader.pool import GraderPool
    from grader.verdict.feedback import feedback
    from grader.verdict.models import Problem, Status, Submission, TimeLimits, Verdict
    from grader.verdict.rewards import reward

# Before torch is loaded: idle OpenMP threads spin for milliseconds on cores that workers need. Workers keep PyTorch's
# default.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__all__ = [
    "AsyncClient",
    "Client",
    "Grader",
    "GraderError",
    "GraderOptions",
    "GraderPool",
    "Problem",
    "Status",
    "Submission",
    "TimeLimits",
    "UserError",
    "Verdict",
    "Work",
    "feedback",
    "grade",
    "reward",
]

_HOMES = {
    "grader.api": ("Grader", "grade"),
    "grader.client": ("AsyncClient", "Client"),
    "grader.errors": ("GraderError", "UserError"),
    "grader.options": ("GraderOptions",),
    "grader.pool": ("GraderPool",),
    "grader.verdict.feedback": ("feedback",),
    "grader.verdict.models": ("Problem", "Status", "Submission", "TimeLimits", "Verdict"),
    "grader.verdict.rewards": ("reward",),
    "grader.catalog.requests": ("Work",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(home), name)
            return value
    raise AttributeError(f"module 'grader' has no attribute {name!r}")
