"""Speedups over the best of torch.compile's modes, from the baselines in stored verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import func, select
from sqlmodel import Session

from db.engine import among
from db.tables import verdicts

COMPILED = ("compile", "compile_max_autotune")
"""Names of the baselines that are torch.compile."""

_SPEEDUP = ("speedup", "ci_low", "ci_high")


@dataclass(frozen=True)
class Speedup:
    """A speedup with its 95% interval."""

    value: float
    low: float
    high: float


def over_compile(
    baselines: Sequence[Any], figure: Literal["total", "forward", "backward"], phase: Any
) -> Speedup | None:
    """The speedup over the fastest compiled baseline; None if there is none, or no time to compare.

    `baselines` and `phase` are as in a verdict's JSON. It is the speedup over eager PyTorch, with its interval, times
    compiled / eager, both from the baselines' run; the spread of that ratio is not in it.
    """
    known = {one.get("name"): one.get(f"{figure}_ms") for one in baselines}
    best = min((float(known[name]) for name in COMPILED if known.get(name)), default=None)
    if best is None or not phase or not all(phase.get(name) for name in ("reference_ms", *_SPEEDUP)):
        return None
    ratio = best / float(known.get("eager") or phase["reference_ms"])
    figures = [float(phase[name]) * ratio for name in _SPEEDUP]
    return Speedup(*figures) if all(math.isfinite(one) and one > 0 for one in figures) else None


def read_over_compile(session: Session, ids: Sequence[int], figure: Literal["total", "forward"]) -> dict[int, Speedup]:
    """Speedups by verdict id, for verdicts that have one."""
    timing = func.json_extract(verdicts.c.document, "$.timing.baselines", f"$.timing.{figure}")
    rows = session.execute(select(verdicts.c.id, timing).where(verdicts.c.id.in_(among(ids))))
    known = ((verdict_id, json.loads(found)) for verdict_id, found in rows)
    over = {verdict_id: over_compile(baselines or (), figure, phase) for verdict_id, (baselines, phase) in known}
    return {verdict_id: found for verdict_id, found in over.items() if found is not None}
