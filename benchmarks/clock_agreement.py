"""How far honest claims stand from the referee's clock on this machine, and how often honest ones are suspected.

    python -m benchmarks.clock_agreement [--device cpu|cuda] [--processes 4] [--pairs 120]
                                         [--json samples.json] [--from samples.json]

References are timed against themselves, so every claim is true. Printed are the claim's share of what the referee saw
beyond the overhead, by how much the overheads of single processes are off it, and, over gradings of seven rounds drawn
from one process, how many would have been given the referee's figure or called a disagreement, for values of AGREEMENT
and LEAST_SHARE around the present ones. Run it on a machine with nothing else to do; beside other work it tells what
other work does, which is worth knowing too.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from grader.catalog.problems_and_submissions import find_problems
from grader.grading import plan
from grader.grading.resources import Resources
from grader.grading.selftest import CONVOLUTION, itself, problems
from grader.grading.timing import clocks
from grader.grading.timing.call import Phase
from grader.grading.timing.clocks import Samples, Time, timing_of
from grader.grading.timing.pair import Arms
from grader.grading.timing.rounds import repeats
from grader.verdict.models import Device

ROUNDS = 7
GRADINGS = 400
AGREEMENTS = (0.02, 0.05, 0.10, 0.15)
LEAST_SHARES = {Device.CPU: (0.05, 0.1, 0.2), Device.CUDA: (0.005, 0.01, 0.02)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CPU)
    parser.add_argument("--processes", type=int, default=4, help="candidates, one after another, for each problem")
    parser.add_argument("--pairs", type=int, default=120, help="of reference and itself, for each of them and phase")
    parser.add_argument("--json", type=Path, help="keep the samples here")
    parser.add_argument("--from", dest="source", type=Path, help="print from samples kept earlier")
    arguments = parser.parse_args()
    source = (
        json.loads(arguments.source.read_text()).items()
        if arguments.source
        else measure(arguments.device, arguments.processes, arguments.pairs)
    )
    kept = {}
    print(f"load average {os.getloadavg()[0]:.1f} on {len(os.sched_getaffinity(0))} CPUs")
    for name, processes in source:
        kept[name] = processes
        times = [[(Time(*reference), Time(*candidate)) for reference, candidate in pairs] for pairs in processes]
        report(name, times, arguments.device)
    if arguments.json:
        arguments.json.write_text(json.dumps(kept))


Row = tuple[tuple[float, float], tuple[float, float]]
"""(claim, bracket) in milliseconds of the reference and of itself."""


def measure(device: Device, processes: int, count: int) -> Iterator[tuple[str, list[list[Row]]]]:
    """Problem and phase, with the rows of each process."""
    convolution = find_problems(()).problem(CONVOLUTION)
    with Resources() as resources:
        for problem in problems(device, convolution)[:2]:
            oracle, found = resources.oracle(problem, device), defaultdict[str, list[list[Row]]](list)
            case = oracle.case(plan.variants(oracle)[-1])
            for _ in range(processes):
                with resources.candidate(itself(problem), device) as candidate:
                    resources.align(oracle, candidate, case, plan.rounds(device, quick=False))
                    arms = Arms(candidate, oracle, case, tf32=True)
                    for phase in ("inference", "training"):
                        found[f"{problem.id} {phase}"].append(_rows(arms, phase, device, count))
            yield from found.items()


def _rows(arms: Arms, phase: Phase, device: Device, count: int) -> list[Row]:
    """Of as many calls a sample as a grading makes."""
    arms.queues = False
    for _ in range(3):
        first, _, _ = arms.pair(phase, True, 1)
    calls = repeats(sum(time.claim for time in first.values()), device)
    arms.queues = True
    rows: list[Row] = []
    for _ in range(count):
        reference, other, _ = arms.pair(phase, random.random() < 0.5, calls)
        rows += [
            ((time.claim, time.bracket), (other[part].claim, other[part].bracket))
            for part, time in reference.items()
            if part != "forward"
        ]
    return rows


def report(name: str, processes: list[list[tuple[Time, Time]]], device: Device) -> None:
    pairs = [pair for of in processes for pair in of]
    overhead = statistics.median(reference.unexplained for reference, _ in pairs)
    claims = [other.claim for _, other in pairs]
    # Where the bracket is shorter than the overhead, nothing was seen: shown as 99.
    shares = sorted(min(99.0, other.claim / max(other.bracket - overhead, 1e-6)) for _, other in pairs)
    beyond = sorted((other.unexplained - overhead) / overhead for _, other in pairs)
    print(f"\n{name}: {len(pairs)} samples, claim {statistics.median(claims):.4f} ms, overhead {overhead:.4f} ms")
    print("  percentile                     1      5     25     50     75     95     99")
    for what, values in (("claim / seen", shares), ("(left over) / overhead", beyond)):
        print(f"  {what:<24}" + "".join(f"{_at(values, q):>7.3f}" for q in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)))
    excess = " ".join(f"{1e3 * _samples(of, device).excess():.2f}" for of in processes)
    print(f"  microseconds by which each process's overhead is off the reference's: {excess}")
    print(f"  of {GRADINGS} gradings of {ROUNDS} rounds: given the referee's figure / called a disagreement")
    print("  AGREEMENT  " + "".join(f"   LEAST_SHARE {share:<5}" for share in LEAST_SHARES[device]))
    for agreement in AGREEMENTS:
        cells = (_false_alarms(processes, device, agreement, share) for share in LEAST_SHARES[device])
        print(
            f"  {agreement:<11}" + "".join(f"   {given:>7.1%} / {called:<7.1%}" for given, called in cells), flush=True
        )


def _samples(pairs: Sequence[tuple[Time, Time]], device: Device) -> Samples:
    """Two pairs a round."""
    return Samples(device, [(pairs[i], pairs[i + 1]) for i in range(0, len(pairs) - 1, 2)])


def _false_alarms(
    processes: list[list[tuple[Time, Time]]], device: Device, agreement: float, least_share: float
) -> tuple[float, float]:
    source, given, called = random.Random(0), 0, 0
    before = clocks.AGREEMENT, clocks.LEAST_SHARE
    clocks.AGREEMENT, clocks.LEAST_SHARE = agreement, {device: least_share}
    try:
        for _ in range(GRADINGS):
            drawn = source.choices(source.choice(processes), k=2 * ROUNDS)
            timing, disputed = timing_of(_samples(drawn, device))
            given, called = given + (timing.clock == "referee"), called + disputed
    finally:
        clocks.AGREEMENT, clocks.LEAST_SHARE = before
    return given / GRADINGS, called / GRADINGS


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
