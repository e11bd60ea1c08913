"""The referee's end of a worker: its sandbox, its control socket, the memory that both map. TRUSTED.

Everything that comes back through here is evidence: checked for form, copied to private memory, and never believed.

Names are loaded when they are first used, so that `worker_template` can be imported, and a zygote started, before
torch is.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grader.executor.client import WorkerClient
    from grader.executor.gpu_timeline import TimelineJob
    from grader.executor.job import JobBuilder
    from grader.executor.job_result import JobResult, TensorSpec
    from grader.executor.worker_process import Killer, WorkerLost, WorkerOptions

__all__ = [
    "JobBuilder",
    "JobResult",
    "Killer",
    "TensorSpec",
    "TimelineJob",
    "WorkerClient",
    "WorkerLost",
    "WorkerOptions",
]

_MODULES = {
    "grader.executor.client": ("WorkerClient",),
    "grader.executor.gpu_timeline": ("TimelineJob",),
    "grader.executor.job": ("JobBuilder",),
    "grader.executor.job_result": ("JobResult", "TensorSpec"),
    "grader.executor.worker_process": ("Killer", "WorkerLost", "WorkerOptions"),
}


def __getattr__(name: str) -> object:
    for module, names in _MODULES.items():
        if name in names:
            value = globals()[name] = getattr(importlib.import_module(module), name)
            return value
    raise AttributeError(f"module 'grader.executor' has no attribute {name!r}")
