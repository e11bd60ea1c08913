"""A grader for GPU kernels that nobody has read yet.

    from grader import grade

    verdict = grade("my_kernel.py", problem="conv2d_mul_leaky_relu_gelu")

Names are loaded when they are first used: `import grader` costs nothing, `from grader import grade` no torch.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.api import Grader, grade
    from grader.errors import GraderError, UserError
    from grader.models import Problem, Status, Submission, TimeLimits, Verdict
    from grader.rewards import reward
    from grader.work import Work

# Before torch is loaded: OpenMP's threads wait for more work by spinning, for milliseconds, on cores that others need;
# the one that this process itself wakes them from, too. Workers keep what PyTorch ships: they have the cores.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

__version__ = "0.1.0"

__all__ = [
    "Grader",
    "GraderError",
    "Problem",
    "Status",
    "Submission",
    "TimeLimits",
    "UserError",
    "Verdict",
    "Work",
    "grade",
    "reward",
]

_HOMES = {
    "grader.api": ("Grader", "grade"),
    "grader.errors": ("GraderError", "UserError"),
    "grader.models": ("Problem", "Status", "Submission", "TimeLimits", "Verdict"),
    "grader.rewards": ("reward",),
    "grader.work": ("Work",),
}


def __getattr__(name: str) -> object:
    for home, names in _HOMES.items():
        if name in names:
            found = globals()[name] = getattr(importlib.import_module(home), name)
            return found
    raise AttributeError(f"module 'grader' has no attribute {name!r}")
