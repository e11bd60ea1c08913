#!/usr/bin/env python3
"""Grade the reference solutions against torch.compile, and print the table of docs/explanation/measured.md.

python -m benchmarks.solutions [--record] [FILE ...]

Grades every reference solution, or the given ones, with the baselines, on a GPU. With --record, writes the ratios to
reference_solutions/recorded.json, which `pytest -m gpu tests/test_solution_speed.py` compares with.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from grader.api import Grader
from grader.verdict.models import Verdict
from grader.verdict.stages import PhaseTiming, TimingResult

SOLUTIONS = Path(__file__).parents[1] / "reference_solutions"
RECORDED = SOLUTIONS / "recorded.json"


class Ratio(NamedTuple):
    """How many times as long as the solution the best mode of torch.compile takes."""

    value: float
    low: float
    """The lower end of the 95% interval of the speedup over eager, as a ratio over torch.compile."""


def ratios(timing: TimingResult) -> dict[str, Ratio]:
    """The ratios of `forward` and `total`; those of which a time is missing are left out."""
    found: dict[str, Ratio] = {}
    for name, phase in (("forward", timing.forward), ("total", timing.total)):
        compiled = best_compiled_ms(timing, name)
        if phase is not None and compiled is not None:
            value = compiled / phase.candidate_ms
            found[name] = Ratio(value, value * phase.ci_low / phase.speedup)
    return found


def best_compiled_ms(timing: TimingResult, phase: str) -> float | None:
    """Milliseconds of the faster mode of torch.compile."""
    compiled = [baseline for baseline in timing.baselines if baseline.name != "eager"]
    times = [baseline.forward_ms if phase == "forward" else baseline.total_ms for baseline in compiled]
    return min((time for time in times if time is not None), default=None)


def measured(files: Iterable[Path]) -> Iterator[Verdict]:
    """Grade the files one after another with the baselines."""
    with Grader(device="cuda", baselines=True) as grader:
        yield from grader.grade_many(files)


def row(verdict: Verdict) -> str:
    """A verdict as a row of the table: milliseconds forward and in total, ratios, and the share of the bound."""
    timing = verdict.timing
    if timing is None or timing.forward is None or timing.total is None:
        return f"| `{verdict.problem_id}` | {verdict.status} | | | | | | | |"
    compared = ratios(timing)
    cells = [f"`{verdict.problem_id}`"]
    for name, phase in (("forward", timing.forward), ("total", timing.total)):
        compiled, ratio = best_compiled_ms(timing, name), compared.get(name)
        cells += [
            f"{phase.reference_ms:.3f}",
            "" if compiled is None else f"{compiled:.3f}",
            f"{phase.candidate_ms:.3f}",
            "" if ratio is None else f"{ratio.value:.2f}x [{ratio.low:.2f}]",
        ]
    return f"| {' | '.join([*cells, _share(timing.total)])} |"


def _share(phase: PhaseTiming) -> str:
    return "" if phase.bound_ms is None else f"{phase.bound_ms / phase.candidate_ms:.0%}"


HEADER = (
    "| problem | forward: eager | compile | ours | ratio | total: eager | compile | ours | ratio | of the bound |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |"
)


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if a solution is not correct."""
    record = "--record" in arguments
    files = [Path(name) for name in arguments if name != "--record"] or sorted(SOLUTIONS.glob("*.py"))
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}; milliseconds")
    print(HEADER, flush=True)
    recorded: dict[str, Any] = json.loads(RECORDED.read_text())
    right = True
    for verdict in measured(files):
        print(row(verdict), flush=True)
        right &= verdict.status == "correct"
        for diagnosis in verdict.diagnoses:
            print(f"    {diagnosis.code}: {diagnosis.message}", file=sys.stderr, flush=True)
        if verdict.timing is not None and verdict.status == "correct":
            recorded[verdict.problem_id] = {
                name: round(ratio.value, 3) for name, ratio in ratios(verdict.timing).items()
            }
    if record:
        RECORDED.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
