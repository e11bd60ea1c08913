"""Simulates the errors of the timing rule when two processes of one program differ by a constant.

    python -m benchmarks.timing_rule [--gradings 1000] [--held-up 0.02]

Each process draws a fixed offset, uniform within plus or minus the value shown; a grading has one pair of processes.
Each pair of calls adds normal noise, and some calls are delayed, by 10% on average. The table shows the share of equal
programs called faster or slower, the share of slower copies called slower, and the rounds needed.

`nested` is the alternative that treats a process as a random effect: k fresh pairs of processes of three rounds each,
and a nested bootstrap over pairs and their rounds, as Student's t times its standard error. Needs no GPU.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
from collections.abc import Callable, Iterator

from grader.grading.timing.statistics import Round, may_be_placement, outcome_of, speedup, students_t
from grader.grading.timing.stopping import QUICK, RoundLimits, thorough
from grader.machine.backends import backend
from grader.verdict.models import Device

Rule = Callable[[float], tuple[str, float]]
"""Maps a candidate's slowdown over the reference to its verdict and the number of rounds."""
SLOWDOWNS = {Device.CUDA: (1.03, 1.05, 1.08), Device.CPU: (1.10, 1.15)}
OFFSETS = {Device.CUDA: (0.001, 0.007, 0.014), Device.CPU: (0.014, 0.02)}
NOISES = {Device.CUDA: (0.001, 0.005, 0.02), Device.CPU: (0.01, 0.03, 0.06)}
CALL_MS = 1.0
"""Milliseconds of the reference's call: long enough for the margin of longer calls."""
NESTED_PAIRS = (3, 5, 7)
NESTED_ROUNDS = 3
NESTED_RESAMPLES = 200


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CUDA)
    parser.add_argument("--gradings", type=int, default=1000, help="simulated gradings per cell of the table")
    parser.add_argument("--held-up", type=float, default=0.02, help="share of the pairs of calls that are held up")
    parser.add_argument("--nested", action="store_true", help="simulate the nested alternative too")
    arguments = parser.parse_args()
    device = arguments.device
    slowdowns = SLOWDOWNS[device]
    columns = "".join(f"{f'{slowdown - 1:.0%} found':>11}" for slowdown in slowdowns)
    print(f"offset  noise  rule       false alarms{columns}  rounds")
    for offset in OFFSETS[device]:
        for noise in NOISES[device]:
            processes = Processes(offset, noise, arguments.held_up)
            for name, rule in rules(processes, device, nested=arguments.nested):
                equal = [rule(1.0) for _ in range(arguments.gradings)]
                different = sum(verdict in ("faster", "slower") for verdict, _ in equal) / len(equal)
                shares = [share_slower(rule, slowdown, arguments.gradings) for slowdown in slowdowns]
                rounds = statistics.fmean(count for _, count in equal)
                cells = "".join(f"{share:>11.1%}" for share in shares)
                print(
                    f"{offset:>6.1%}  {noise:>5.1%}  {name:<9}  {different:>12.2%}{cells}  {rounds:>6.1f}", flush=True
                )


def share_slower(rule: Rule, slowdown: float, gradings: int) -> float:
    """Share of the copies that take `slowdown` times as long which are called slower."""
    return sum(rule(slowdown)[0] == "slower" for _ in range(gradings)) / gradings


class Processes:
    """Draws log ratios of (reference / candidate) as pairs of processes would give them."""

    def __init__(self, offset: float, noise: float, held_up: float) -> None:
        self._offset, self._noise, self._held_up = offset, noise, held_up
        self._draw = random.Random(0)

    def pair(self, slowdown: float) -> float:
        """The steady log ratio of a fresh pair of processes."""
        one, other = (self._draw.uniform(-self._offset, self._offset) for _ in range(2))
        return one - other - math.log(slowdown)

    def round(self, steady: float) -> Round:
        """One round of the pair with this steady log ratio."""
        one, other = (math.exp(steady + self._disturbance()) for _ in range(2))
        return Round((one, other), (1.0, 1.0))

    def _disturbance(self) -> float:
        noise = self._draw.gauss(0.0, self._noise)
        if self._draw.random() < self._held_up:
            noise += self._draw.choice((-1, 1)) * self._draw.expovariate(10.0)
        return noise


def rules(processes: Processes, device: Device, *, nested: bool) -> Iterator[tuple[str, Rule]]:
    """Name and rule, for each row of the table."""
    yield "quick", lambda slowdown: one_pair(processes, QUICK, device, slowdown)
    yield "thorough", lambda slowdown: one_pair(processes, thorough(device), device, slowdown)
    if nested:
        for pairs in NESTED_PAIRS:
            yield f"nested {pairs}", lambda slowdown, pairs=pairs: nested_pairs(processes, pairs, device, slowdown)


def one_pair(processes: Processes, plan: RoundLimits, device: Device, slowdown: float) -> tuple[str, float]:
    """The current rule: one pair of processes, and pairs of calls until the interval is narrow enough."""
    steady, narrow = processes.pair(slowdown), backend(device).timing.resolution.half_width
    rounds: list[Round] = []
    while True:
        whole = processes.round(steady)
        half = Round(whole.reference_ms[:1], whole.candidate_ms[:1])
        for last in (half, whole):
            count = len(rounds) + len(last.reference_ms) / 2
            if count >= plan.min_rounds:
                figure = speedup([*rounds, last])
                pending = may_be_placement(figure.ci_low, figure.ci_high, count, device, CALL_MS)
                if (figure.half_width <= narrow and not pending) or count >= plan.max_rounds:
                    return outcome_of(figure.ci_low, figure.ci_high, count, device, CALL_MS), count
        rounds.append(whole)


def nested_pairs(processes: Processes, pairs: int, device: Device, slowdown: float) -> tuple[str, float]:
    """Fresh pairs of processes, and an interval from a nested bootstrap over pairs and their rounds."""
    ratios = []
    for _ in range(pairs):
        steady = processes.pair(slowdown)
        ratios.append([ratio for _ in range(NESTED_ROUNDS) for ratio in processes.round(steady).log_ratios])
    draw = random.Random(0)
    means = [
        statistics.fmean(_middle(draw.choices(of_pair, k=len(of_pair))) for of_pair in draw.choices(ratios, k=pairs))
        for _ in range(NESTED_RESAMPLES)
    ]
    middle = statistics.fmean(map(_middle, ratios))
    half = students_t(pairs - 1) * statistics.stdev(means) * math.sqrt(pairs / (pairs - 1))
    margin = math.log(1 + backend(device).timing.resolution.margin_at(CALL_MS))
    verdict = "faster" if middle - half > margin else "slower" if middle + half < -margin else "inconclusive"
    return verdict, pairs * NESTED_ROUNDS


def _middle(ratios: list[float]) -> float:
    """Mean without the lowest and the highest of six."""
    return statistics.fmean(sorted(ratios)[1:-1])


if __name__ == "__main__":
    main()
