"""Speedups over the best of torch.compile's modes, from the baselines in stored verdicts."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

from sqlalchemy import bindparam, text
from sqlmodel import Session

COMPILED = ("compile", "compile_max_autotune")
"""Names of the baselines that are torch.compile."""

_SPEEDUP = ("speedup", "ci_low", "ci_high")

_IDS_AT_ONCE = 500
"""Ids in one query; SQLite takes 32,766."""


class OverCompile(NamedTuple):
    """A speedup over torch.compile with its interval."""

    value: float
    low: float
    high: float


def over_compile(
    baselines: Sequence[Any], figure: Literal["total", "forward", "backward"], phase: Any
) -> OverCompile | None:
    """The speedup over the fastest compiled baseline; None if there is none, or no time to compare.

    `baselines` and `phase` are as in a verdict's JSON. It is the speedup over eager PyTorch, with its interval, times
    compiled / eager, both from the baselines' run; the spread of that ratio is not in it.
    """
    known = {one.get("name"): one.get(f"{figure}_ms") for one in baselines}
    best = min((float(known[name]) for name in COMPILED if known.get(name)), default=None)
    if (
        best is None
        or not phase
        or not all(phase.get(name) for name in ("reference_ms", "speedup", "ci_low", "ci_high"))
    ):
        return None
    ratio = best / float(known.get("eager") or phase["reference_ms"])
    found = OverCompile(*(float(phase[name]) * ratio for name in _SPEEDUP))
    return found if all(math.isfinite(one) and one > 0 for one in found) else None


def read_over_compile(
    session: Session, ids: Sequence[int], figure: Literal["total", "forward"]
) -> dict[int, OverCompile]:
    """Speedups by verdict id, for verdicts that have one."""
    return {verdict_id: found for verdict_id, found in _read(session, ids, figure) if found is not None}


def _read(
    session: Session, ids: Sequence[int], figure: Literal["total", "forward"]
) -> Iterator[tuple[int, OverCompile | None]]:
    query = text(
        f"select id, json_extract(document, '$.timing.baselines', '$.timing.{figure}') from verdicts where id in :ids"
    ).bindparams(bindparam("ids", expanding=True))
    for start in range(0, len(ids), _IDS_AT_ONCE):
        for verdict_id, found in session.execute(query, {"ids": list(ids[start : start + _IDS_AT_ONCE])}):
            baselines, phase = json.loads(found)
            yield verdict_id, over_compile(baselines or (), figure, phase)
