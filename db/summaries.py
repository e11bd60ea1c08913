"""Entries of a board, and their summary by author: means, fast_p and pass@k."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from pydantic import Field

from db import metrics
from grader.verdict.models import Device, Status
from grader.verdict.value import Value

SampleCounts = dict[tuple[str, str], Counter[tuple[int, int]]]
"""By (author, device name): the number of problems by (samples, correct samples)."""


class Entry(Value):
    """One line of a board."""

    rank: int | None
    """Within problem and device; None without a finite time, and above 110% of the roofline bound."""
    tied: bool = False
    """Whether others have the same rank."""
    problem: str
    device: Device
    device_name: str
    author: str
    label: str | None
    sample: int | None
    status: Status
    speedup: float | None
    ci_low: float | None
    """Lower end of the 95% interval; entries rank by it."""
    ci_high: float | None = None
    share_of_light: float | None = None
    """Roofline bound over the candidate's time, 1 at the bound; None if no bound is known."""
    labels: tuple[str, ...] = ()
    """`Verdict.labels`."""
    quick: bool
    sandbox: str
    verdict_id: int
    created_at: str

    @property
    def floored_speedup(self) -> float | None:
        """The speedup, at most that of the roofline bound: one impossible time must not dominate a mean."""
        if self.speedup is None or self.share_of_light is None:
            return self.speedup
        return self.speedup / max(1.0, self.share_of_light)


class Summary(Value):
    """One author's best entries of a board, over all problems on one device."""

    author: str
    device_name: str
    problems: int
    """Number of problems with a rank; the means are over these."""
    tried: int = 0
    """Number of attempted problems; fast_p is over these."""
    geometric_mean_speedup: float | None
    """Of speedups limited by the roofline bound."""
    geometric_mean_ci_low: float | None
    fast_p: dict[str, float] = Field(default_factory=dict)
    """By p, as text: the share of attempted problems that are correct and more than p times as fast."""
    pass_at_k: dict[str, float | None] = Field(default_factory=dict)
    """By k, as text: mean over the problems with at least k samples; None if there is none."""


def sample_counts(standings: Iterable[Sequence[Any]]) -> SampleCounts:
    """Counts from rows that begin with author, device name, problem, samples and correct samples."""
    drawn: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
    for row in standings:
        author, device_name, problem, samples, right = row[:5]
        problems = drawn[author, device_name]
        others, right_others = problems.get(problem, (0, 0))
        problems[problem] = samples + others, right + right_others
    return {key: Counter(problems.values()) for key, problems in drawn.items()}


def _pass_at(k: int, problems: Mapping[tuple[int, int], int]) -> float | None:
    """Mean pass@k over the problems with at least k samples; None without such a problem."""
    enough = {counts: count for counts, count in problems.items() if counts[0] >= k}
    passed = sum(count * metrics.pass_at_k(samples, right, k) for (samples, right), count in enough.items())
    return passed / sum(enough.values()) if enough else None


def summaries(entries: Iterable[Entry], counts: SampleCounts, pass_at: Sequence[int]) -> list[Summary]:
    """Summaries by author and device, of everybody in `counts`."""
    best: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        best[entry.author, entry.device_name].setdefault(entry.problem, entry)
    summaries = [
        _summary(*key, best[key], problems.total(), {str(k): _pass_at(k, problems) for k in pass_at})
        for key, problems in counts.items()
    ]
    return sorted(
        summaries, key=lambda one: (one.device_name, -one.problems, -(one.geometric_mean_ci_low or 0.0), one.author)
    )


def _summary(
    author: str, device_name: str, best: Mapping[str, Entry], tried: int, chances: dict[str, float | None]
) -> Summary:
    ranked = [entry for entry in best.values() if entry.rank is not None]
    floored = [entry.floored_speedup if entry.rank is not None else None for entry in best.values()]
    speedups = [speedup for speedup in floored if speedup]
    return Summary(
        author=author,
        device_name=device_name,
        problems=len(ranked),
        tried=tried,
        geometric_mean_speedup=geometric_mean(speedups) if speedups else None,
        geometric_mean_ci_low=geometric_mean(e.ci_low for e in ranked if e.ci_low) if ranked else None,
        fast_p={f"{p:g}": metrics.fast_p(floored, p, tried) for p in metrics.FAST_P},
        pass_at_k=chances,
    )
