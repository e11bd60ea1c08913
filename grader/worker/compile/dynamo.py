"""torch.compile as the checks use it: one model under more conditions than any training has.

A function is compiled anew for each mode, shape, and set of operands that require a gradient. After eight of those
Dynamo gives up: it raises, or runs the rest uncompiled, where a dropout draws other numbers under the same seed.
"""

from __future__ import annotations

import sys
from typing import Any

MOST = 256
"""Compilations of one function."""


def allow_many() -> None:
    """Where Dynamo has been imported, which takes seconds."""
    config: Any = sys.modules.get("torch._dynamo.config")
    if config is not None and config.recompile_limit < MOST:
        config.recompile_limit = config.accumulated_recompile_limit = MOST
