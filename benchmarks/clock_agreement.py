"""Measures how far correct reported times deviate from the referee's clock, and how often they are disputed.

    python -m benchmarks.clock_agreement [--device cpu|cuda] [--processes 4] [--pairs 120]
                                         [--rounds 7] [--json samples.json] [--from samples.json]

References are timed against themselves, so every reported time is correct. The first table shows the reported time as
a share of the referee's time without the overhead, and how far the overheads of single processes deviate. The second
simulates gradings by resampling rounds of one process: it shows how many would get the referee's figure or be called a
disagreement, for values of AGREEMENT and `least_share` around the current ones. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from grader.catalog.problems import find_problems
from grader.grading import plan
from grader.grading.resources import Resources
from grader.grading.selftest import CONVOLUTION, itself, problems
from grader.grading.timing import clocks
from grader.grading.timing.calls import Phase
from grader.grading.timing.clocks import Samples, Time, timing_of
from grader.grading.timing.pair import WorkerPair
from grader.grading.timing.rounds import repeats
from grader.machine.backends import backend
from grader.verdict.models import Device

GRADINGS = 400
AGREEMENTS = (0.02, 0.05, 0.10, 0.15)
LEAST_SHARES = {Device.CPU: (0.05, 0.1, 0.2), Device.CUDA: (0.005, 0.01, 0.02)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CPU)
    parser.add_argument("--processes", type=int, default=4, help="candidates for each problem, one after another")
    parser.add_argument("--pairs", type=int, default=120, help="timed pairs for each candidate and phase")
    parser.add_argument("--rounds", type=int, default=7, help="rounds of a simulated grading; 1.5 to 5 with --quick")
    parser.add_argument("--json", type=Path, help="write the samples to this file")
    parser.add_argument("--from", dest="source", type=Path, help="read samples from this file instead of measuring")
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
        report(name, times, arguments.device, arguments.rounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(kept))


Row = tuple[tuple[float, float], tuple[float, float]]
"""(reported time, referee interval) in milliseconds, of the reference and of its copy."""


def measure(device: Device, processes: int, count: int) -> Iterator[tuple[str, list[list[Row]]]]:
    """Name of problem and phase, with the rows of each process."""
    convolution = find_problems(()).problem(CONVOLUTION)
    with Resources() as resources:
        for problem in problems(device, convolution)[:2]:
            oracle, rows = resources.oracle(problem, device), defaultdict[str, list[list[Row]]](list)
            case = oracle.case(plan.variants(oracle)[-1])
            for _ in range(processes):
                with resources.candidate(itself(problem), device) as candidate:
                    resources.align(oracle, candidate, case, plan.rounds(device, quick=False))
                    with WorkerPair(candidate, oracle, case, tf32=True) as pair:
                        for phase in ("inference", "training"):
                            rows[f"{problem.id} {phase}"].append(_rows(pair, phase, device, count))
            yield from rows.items()


def _rows(pair: WorkerPair, phase: Phase, device: Device, count: int) -> list[Row]:
    """Rows of samples with as many calls as a grading makes."""
    pair.start = "at once"
    for _ in range(3):
        first, _, _ = pair.time_pair({phase: 1}, True)
    calls = repeats(sum(time.reported for time in first.values()), device)
    pair.start = "queued"
    rows: list[Row] = []
    for _ in range(count):
        reference, other, _ = pair.time_pair({phase: calls}, random.random() < 0.5)
        rows += [
            ((time.reported, time.interval), (other[part].reported, other[part].interval))
            for part, time in reference.items()
            if part != "forward"
        ]
    return rows


def report(name: str, processes: list[list[tuple[Time, Time]]], device: Device, rounds: int) -> None:
    """Print one problem and phase."""
    pairs = [pair for process in processes for pair in process]
    overhead = statistics.median(reference.unexplained for reference, _ in pairs)
    reported = [other.reported for _, other in pairs]
    # An interval shorter than the overhead shows nothing: printed as 99.
    shares = sorted(min(99.0, other.reported / max(other.interval - overhead, 1e-6)) for _, other in pairs)
    beyond = sorted((other.unexplained - overhead) / overhead for _, other in pairs)
    print(f"\n{name}: {len(pairs)} samples, reported {statistics.median(reported):.4f} ms, overhead {overhead:.4f} ms")
    print("  percentile                     1      5     25     50     75     95     99")
    for what, values in (("reported / referee", shares), ("(unexplained) / overhead", beyond)):
        print(f"  {what:<24}" + "".join(f"{_at(values, q):>7.3f}" for q in (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)))
    excess = " ".join(f"{1e3 * _samples(process, device).excess():.2f}" for process in processes)
    print(f"  microseconds by which each process's overhead is off the reference's: {excess}")
    print(f"  of {GRADINGS} gradings of {rounds} rounds: given the referee's figure / called a disagreement")
    print("  AGREEMENT  " + "".join(f"   least share {share:<5}" for share in LEAST_SHARES[device]))
    for agreement in AGREEMENTS:
        cells = (_false_alarms(processes, device, rounds, agreement, share) for share in LEAST_SHARES[device])
        print(
            f"  {agreement:<11}" + "".join(f"   {given:>7.1%} / {called:<7.1%}" for given, called in cells), flush=True
        )


def _samples(pairs: Sequence[tuple[Time, Time]], device: Device) -> Samples:
    """Samples with two pairs a round."""
    return Samples(device, [(pairs[i], pairs[i + 1]) for i in range(0, len(pairs) - 1, 2)])


def _false_alarms(
    processes: list[list[tuple[Time, Time]]], device: Device, rounds: int, agreement: float, least_share: float
) -> tuple[float, float]:
    source, given, called = random.Random(0), 0, 0
    own, before = backend(device), (clocks.AGREEMENT, backend(device).timing)
    clocks.AGREEMENT, own.timing = agreement, replace(own.timing, least_share=least_share)
    try:
        for _ in range(GRADINGS):
            drawn = source.choices(source.choice(processes), k=2 * rounds)
            timing, disputed = timing_of(_samples(drawn, device))
            given, called = given + (timing.clock == "referee"), called + disputed
    finally:
        clocks.AGREEMENT, own.timing = before
    return given / GRADINGS, called / GRADINGS


def _at(values: list[float], share: float) -> float:
    return values[min(len(values) - 1, int(share * len(values)))]


if __name__ == "__main__":
    main()
