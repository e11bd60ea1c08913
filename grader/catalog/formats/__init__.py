"""The problem formats, by name.

Each module of this package without a leading underscore in its name declares one format as `FORMAT`.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from grader.catalog.formats._base import Entry, NamedBy, NotAProblem, ProblemFormat

__all__ = ["FORMATS", "Entry", "NamedBy", "NotAProblem", "ProblemFormat", "format_named"]


def declared() -> Mapping[str, ProblemFormat]:
    """The formats of the modules in this package, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    formats: list[ProblemFormat] = [importlib.import_module(f"{__name__}.{name}").FORMAT for name in names]
    return MappingProxyType({one.name: one for one in formats})


FORMATS: Mapping[str, ProblemFormat] = declared()
"""By name, in the order in which they are asked whether a path is theirs."""


def format_named(name: str) -> ProblemFormat:
    """The format that a problem or submission names. Raises KeyError for one that is not installed."""
    return FORMATS[name]
