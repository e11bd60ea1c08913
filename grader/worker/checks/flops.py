"""Which operators are products, and how many floating-point operations they take."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import Any


def flop_formulas() -> Mapping[Any, Callable[..., int]]:
    """Return the formulas of FlopCounterMode, by operator.

    The mode itself asks each operator for a decomposition, which takes seconds of imports. Triton, which its module
    imports in a tenth of a second to count Triton's own kernels, is hidden from it unless it is imported already.
    """
    hidden = "triton" not in sys.modules
    if hidden:
        sys.modules["triton"] = None  # type: ignore[assignment]
        logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)  # it would warn
    try:
        from torch.utils.flop_counter import flop_registry
    finally:
        if hidden:
            del sys.modules["triton"]
    return flop_registry
