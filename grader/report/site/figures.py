"""Computes the counts that the charts show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from db.against import Speedup
from db.rows import Row
from grader.verdict.models import NO_DEVICE, Device, Status

FAST_P_STEPS = tuple(step / 20 for step in range(61))
"""The slider's positions, 0 to 3."""


@dataclass(frozen=True)
class Funnel:
    """Number of submissions that pass each stage."""

    graded: int
    built: int
    forward: int
    backward: int
    missing_backward: int
    wrong_backward: int
    not_run: int
    statuses: tuple[tuple[Status, int], ...]
    """Most frequent first."""

    def share(self, count: int) -> float:
        """Share of the graded submissions; 0 if there are none."""
        return count / self.graded if self.graded else 0.0


@dataclass(frozen=True)
class DeviceRows:
    """One device's counted verdicts; speedups on different devices are not comparable."""

    kind: Device
    name: str
    rows: tuple[Row, ...]

    @property
    def problems(self) -> list[str]:
        """Problems with a verdict on this device, sorted."""
        return sorted({row.problem for row in self.rows})

    @property
    def authors(self) -> list[str]:
        """Authors with a verdict on this device, sorted."""
        return sorted({row.author for row in self.rows})


@dataclass(frozen=True)
class FastP:
    """Counts of correct submissions faster than p, for the slider's positions."""

    count: int
    """Number of submissions."""
    total: tuple[int, ...]
    forward: tuple[int, ...]
    total_speedups: tuple[float, ...]
    """Sorted; submissions without a time are left out."""
    forward_speedups: tuple[float, ...]

    def at(self, p: float) -> tuple[float, float]:
        """The shares (total, forward) at one of `FAST_P_STEPS`."""
        step = FAST_P_STEPS.index(p)
        return (self.total[step] / self.count, self.forward[step] / self.count) if self.count else (0.0, 0.0)


@dataclass(frozen=True)
class BoundShares:
    """Percent of the roofline bound, for the best on a problem or for one verdict."""

    name: str
    total: float | None
    forward: float | None
    total_row: Row | None = None
    forward_row: Row | None = None


def funnel(rows: Iterable[Row]) -> Funnel:
    """Counts of submissions by stage passed and by status."""
    rows = list(rows)
    graded = [row for row in rows if row.status is not Status.NOT_RUN]
    statuses = Counter(row.status for row in graded)
    return Funnel(
        graded=len(graded),
        # A correct forward was built, even if the build's own record is missing.
        built=sum(row.built or row.right_forward for row in graded),
        forward=sum(row.right_forward for row in graded),
        backward=sum(row.correct for row in graded),
        missing_backward=statuses[Status.MISSING_BACKWARD],
        wrong_backward=statuses[Status.WRONG_BACKWARD],
        not_run=len(rows) - len(graded),
        statuses=tuple(statuses.most_common()),
    )


def failures(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """(code of the first diagnosis, number of submissions) of what is not correct, most frequent first."""
    failed = (row for row in rows if row.status not in (Status.CORRECT, Status.NOT_RUN) and row.codes)
    return Counter(row.codes[0] for row in failed).most_common()


def devices(rows: Iterable[Row]) -> list[DeviceRows]:
    """Verdicts grouped by device: GPUs first, then by number of verdicts. `not_run` has no device."""
    by_name: dict[tuple[Device, str], list[Row]] = {}
    for row in rows:
        if row.status is not Status.NOT_RUN and row.device_name != NO_DEVICE:
            by_name.setdefault((row.device, row.device_name), []).append(row)
    groups = [DeviceRows(kind, name, tuple(device_rows)) for (kind, name), device_rows in by_name.items()]
    return sorted(groups, key=lambda one: (one.kind is Device.CPU, -len(one.rows), one.name))


def fast_p(rows: Sequence[Row]) -> FastP:
    """fast_p over all submissions on one device."""
    total = [row.believed("total") for row in rows if row.correct]
    forward = [row.believed("forward") for row in rows if row.right_forward]
    return FastP(
        count=len(rows),
        total=fast_counts(total, FAST_P_STEPS),
        forward=fast_counts(forward, FAST_P_STEPS),
        total_speedups=tuple(sorted(one.value for one in total if one)),
        forward_speedups=tuple(sorted(one.value for one in forward if one)),
    )


def bound_shares(rows: Iterable[Row]) -> list[BoundShares]:
    """Per problem, the submissions with the highest share of the roofline bound; highest first."""
    total: dict[str, Row] = {}
    forward: dict[str, Row] = {}
    for row in rows:
        if row.correct and row.total_share_of_bound:
            best = max(total.get(row.problem, row), row, key=lambda one: one.total_share_of_bound or 0.0)
            total[row.problem] = best
        if row.right_forward and row.forward_share_of_bound:
            best = max(forward.get(row.problem, row), row, key=lambda one: one.forward_share_of_bound or 0.0)
            forward[row.problem] = best
    problems = total.keys() | forward.keys()
    shares = [_best_shares(problem, total.get(problem), forward.get(problem)) for problem in problems]
    return sorted(shares, key=lambda one: (-(one.total or 0.0), -(one.forward or 0.0), one.name))


def _best_shares(problem: str, total: Row | None, forward: Row | None) -> BoundShares:
    return BoundShares(
        problem,
        total.total_share_of_bound if total else None,
        forward.forward_share_of_bound if forward else None,
        total,
        forward,
    )


def fast_counts(right: Sequence[Speedup | None], steps: Iterable[float]) -> tuple[int, ...]:
    """Number of correct submissions faster than each p; at p = 0 all of them, also untimed ones."""
    return tuple(sum(one.value > p for one in right if one) if p else len(right) for p in steps)


def best_cells(rows: Iterable[Row]) -> dict[tuple[str, str], Row]:
    """Each author's best verdict on each problem, by stage passed, then by lower end."""
    best: dict[tuple[str, str], Row] = {}
    for row in rows:
        key = (row.problem, row.author)
        if key not in best or _goodness(row) > _goodness(best[key]):
            best[key] = row
    return best


def _goodness(row: Row) -> tuple[int, float, int]:
    timed = row.total or row.forward
    passed = 3 if row.correct else 2 if row.right_forward else 1 if row.built else 0
    return (passed, timed.low if timed else 0.0, row.id)
