"""Entries of a board, and their summary by author: means, fast_p and pass@k."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import Field

from db import metrics
from db.bound import at_most_the_bound
from db.metrics import shared_ranks
from grader.verdict.models import Device, Status
from grader.verdict.value import Value


class Attempts(NamedTuple):
    """The attempts on a board."""

    samples: dict[tuple[str, str], Counter[tuple[int, int]]]
    """By (author, device name): the number of problems by (samples, correct samples)."""
    problems: dict[str, int]
    """By device name: the number of problems that anyone attempted, the board's problems."""


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
    share_of_bound: float | None = None
    """Roofline bound over the candidate's time, 1 at the bound; None if no bound is known."""
    vs_compile: float | None = None
    """Speedup over the faster of torch.compile's modes; None without `--baselines`, and on a very large board."""
    labels: tuple[str, ...] = ()
    """`Verdict.labels`."""
    quick: bool
    sandbox: str
    verdict_id: int
    created_at: str

    @property
    def floored(self) -> tuple[float, float, float] | None:
        """Speedup and interval, at most the roofline bound's; None without a rank."""
        if self.rank is None or self.speedup is None or self.ci_low is None:
            return None
        figures = self.speedup, self.ci_low, self.ci_low if self.ci_high is None else self.ci_high
        speedup, low, high = (at_most_the_bound(one, self.share_of_bound) for one in figures)
        return speedup, low, high


class Summary(Value):
    """One author's best entries of a board, over all of the board's problems on one device."""

    rank: int | None = None
    """On the device, by `geometric_mean_ci_low`; None for an author without a ranked problem."""
    tied: bool = False
    """Whether others have the same rank."""
    author: str
    device_name: str
    problems: int
    """Number of problems with a rank."""
    tried: int
    """Number of attempted problems."""
    of: int
    """Number of the board's problems: those that anyone attempted. Means and fast_p are over these."""
    geometric_mean_speedup: float
    """The mean of speedups, each limited by the roofline bound; a problem without a ranked entry counts as 1.0."""
    geometric_mean_ci_low: float
    """The same mean of the intervals' lower ends."""
    geometric_mean_ci_high: float
    fast_p: dict[str, float] = Field(default_factory=dict)
    """By p, as text: the share of the board's problems that are correct and more than p times as fast."""
    pass_at_k: dict[str, float | None] = Field(default_factory=dict)
    """By k, as text: mean over the problems with at least k samples; None if there is none."""


def attempts(standings: Iterable[Sequence[Any]]) -> Attempts:
    """Counts from rows that begin with author, device name, problem, samples and correct samples."""
    drawn: dict[tuple[str, str], dict[str, tuple[int, int]]] = defaultdict(dict)
    names: dict[str, set[str]] = defaultdict(set)
    for row in standings:
        author, device_name, problem, samples, right = row[:5]
        names[device_name].add(problem)
        problems = drawn[author, device_name]
        others, right_others = problems.get(problem, (0, 0))
        problems[problem] = samples + others, right + right_others
    return Attempts(
        samples={key: Counter(problems.values()) for key, problems in drawn.items()},
        problems={device_name: len(problems) for device_name, problems in names.items()},
    )


def _pass_at(k: int, problems: Mapping[tuple[int, int], int]) -> float | None:
    """Mean pass@k over the problems with at least k samples; None without such a problem."""
    enough = {counts: count for counts, count in problems.items() if counts[0] >= k}
    passed = sum(count * metrics.pass_at_k(samples, right, k) for (samples, right), count in enough.items())
    return passed / sum(enough.values()) if enough else None


def summaries(entries: Iterable[Entry], tried: Attempts, pass_at: Sequence[int]) -> list[Summary]:
    """Summaries of everybody who attempted anything, by device, best first."""
    best: dict[tuple[str, str], dict[str, Entry]] = defaultdict(dict)
    for entry in entries:
        best[entry.author, entry.device_name].setdefault(entry.problem, entry)
    unranked: dict[str, list[Summary]] = defaultdict(list)
    for (author, device_name), problems in tried.samples.items():
        chances = {str(k): _pass_at(k, problems) for k in pass_at}
        entered = best[author, device_name].values()
        unranked[device_name].append(_summary(author, device_name, entered, problems.total(), tried, chances))
    return [one for _, group in sorted(unranked.items()) for one in ranked(group)]


def _summary(
    author: str,
    device_name: str,
    best: Collection[Entry],
    attempted: int,
    tried: Attempts,
    chances: dict[str, float | None],
) -> Summary:
    problem_count = tried.problems[device_name]
    floored = [entry.floored for entry in best]
    speedups = [figure[0] if figure else None for figure in floored]
    return summary(
        author,
        device_name,
        [figure for figure in floored if figure],
        problem_count,
        tried=attempted,
        fast_p={f"{p:g}": metrics.fast_p(speedups, p, problem_count) for p in metrics.FAST_P},
        pass_at_k=chances,
    )


def summary(
    author: str, device_name: str, speedups: Sequence[tuple[float, float, float]], problem_count: int, **fields: Any
) -> Summary:
    """An author's means over `problem_count` problems, without a rank.

    `speedups` has (speedup, low, high) of each problem that has a rank.
    """
    speedup, low, high = (metrics.mean_speedup([one[part] for one in speedups], problem_count) for part in range(3))
    return Summary(
        author=author,
        device_name=device_name,
        problems=len(speedups),
        of=problem_count,
        geometric_mean_speedup=speedup,
        geometric_mean_ci_low=low,
        geometric_mean_ci_high=high,
        **fields,
    )


def ranked(group: Iterable[Summary]) -> list[Summary]:
    """The authors on one device with their ranks; those without a ranked problem last."""
    ordered = sorted(group, key=lambda one: (not one.problems, -one.geometric_mean_ci_low, one.author))
    intervals = [(one.geometric_mean_ci_low, one.geometric_mean_ci_high) if one.problems else None for one in ordered]
    return [
        one.model_copy(update={"rank": rank, "tied": tied})
        for one, (rank, tied) in zip(ordered, shared_ranks(intervals), strict=True)
    ]
