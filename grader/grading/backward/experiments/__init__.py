"""Experiments on the backward: runs that a right gradient passes and a plausible mistake fails.

A module of this package registers its experiments when it is imported, which happens here: a new module needs no entry
elsewhere.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from grader.grading.backward.experiments._base import Experiment, ExperimentCases, experiments

__all__ = ["Experiment", "ExperimentCases", "experiments"]

for _module in pkgutil.iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
