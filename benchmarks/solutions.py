#!/usr/bin/env python3
"""Grade the reference solutions against torch.compile, and print the table of docs/explanation/measured.md.

python -m benchmarks.solutions [--problems a,b] [--record [PATH]] [--seconds N] [--quick] [FILE ...]

Grades the reference solutions, or the given files, with `--baselines`: one after another in one process, which compiles
the next ones meanwhile. With --record each figure is kept as soon as it is there; what was recorded of the same source
is not measured again, unless torch.compile's search was not over. So the same command continues, after an interruption
too. `pytest -m gpu tests/test_solution_speed.py` compares with reference_solutions/recorded.json. `--seconds 0` grades
nothing and prints the table of what was recorded.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from pydantic import TypeAdapter

from db.against import COMPILED, over_compile
from grader.api import open_grader
from grader.options import GraderOptions
from grader.verdict.models import Verdict
from grader.verdict.stages import TimingResult
from grader.verdict.value import Value, digest

SOLUTIONS = Path(__file__).parents[1] / "reference_solutions"
RECORDED = SOLUTIONS / "recorded.json"
FIRST = (
    "batched_matmul_bias_gelu",
    "linear_cross_entropy",
    "group_norm_silu",
    "residual_layer_norm",
    "swiglu_mlp",
    "conv2d_mul_leaky_relu_gelu",
    "conv_transpose3d_bias_residual_mul_residual",
    "conv_transpose3d_leaky_relu_mul_leaky_relu_max",
    "conv2d_batch_norm_silu",
    "embedding_mean_linear_cross_entropy",
    "add_rms_norm_position_ids",
)
"""Problems that come first, since their ratios are nearest to what a user would doubt. The first two are in Triton:
while they are graded, the others' CUDA is compiled."""
Phase = Literal["forward", "backward", "total"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "total")


class Figures(Value):
    """One phase: times of eager, of the best mode of torch.compile and of the solution, and the ratio of these two."""

    eager_ms: float
    compile_ms: float | None = None
    ours_ms: float
    bound_ms: float | None = None
    ratio: float | None = None
    """The speedup over torch.compile, as boards have it with `--against compile`."""
    low: float | None = None
    """The lower end of its 95% interval."""


class Recorded(Value):
    """The measurements of one solution."""

    source: str
    """SHA-256 of its source."""
    device: str
    versions: str
    date: str
    status: str
    searched: bool
    """Whether every mode of torch.compile was timed. Its search may take longer than baselines may."""
    phases: dict[Phase, Figures]


_FILE = TypeAdapter(dict[str, Recorded])


def recorded(verdict: Verdict) -> Recorded:
    """The figures of a verdict."""
    environment = verdict.environment
    return Recorded(
        source=verdict.source_hash,
        device=environment.device_name,
        versions=f"torch {environment.torch_version}, CUDA {environment.cuda_version}, "
        f"driver {environment.driver_version}, grader {environment.grader_version}",
        date=f"{verdict.created_at:%Y-%m-%d}",
        status=verdict.status,
        searched=verdict.timing is not None and {one.name for one in verdict.timing.baselines}.issuperset(COMPILED),
        phases={} if verdict.timing is None else figures(verdict.timing),
    )


def figures(timing: TimingResult) -> dict[Phase, Figures]:
    """The figures of the phases that were timed."""
    found: dict[Phase, Figures] = {}
    baselines = [one.model_dump() for one in timing.baselines]
    for name in PHASES:
        phase = getattr(timing, name)
        if phase is None:
            continue
        times = (one[f"{name}_ms"] for one in baselines if one["name"] in COMPILED)
        ratio = over_compile(baselines, name, phase.model_dump())
        found[name] = Figures(
            eager_ms=phase.reference_ms,
            compile_ms=min((ms for ms in times if ms is not None), default=None),
            ours_ms=phase.candidate_ms,
            bound_ms=phase.bound_ms,
            ratio=ratio and ratio.value,
            low=ratio and ratio.low,
        )
    return found


def verdicts(files: Sequence[Path], **options: Any) -> Generator[Verdict, None, None]:
    """Grade the files with the baselines; yields each verdict as it is reached."""
    with open_grader(GraderOptions(baselines=True, **options)) as grader:
        yield from grader.grade_many((file.stem, file) for file in files)


def table(rows: Mapping[str, Recorded]) -> str:
    """The table in Markdown, in the order of `rows`."""
    heads = [f"{name}: eager, compile, ours (ms) | over compile" for name in PHASES]
    lines = [f"| problem | {' | '.join(heads)} | of the bound |", "| --- " * (2 + 2 * len(PHASES)) + "|"]
    lines += (row(problem, one) for problem, one in rows.items())
    if not all(one.searched for one in rows.values()):
        lines.append("\n\\* over the default mode of torch.compile: its search was not over in time")
    return "\n".join(lines)


def row(problem: str, one: Recorded) -> str:
    """A problem's row: times, ratios with the lower end of the interval, shares of the bound forward and in total."""
    cells = [f"`{problem}`" + ("" if one.status == "correct" else f" {one.status}")]
    for name in PHASES:
        phase = one.phases.get(name)
        cells += ["", ""] if phase is None else [_times(phase), _ratio(phase, one.searched)]
    shares = (one.phases[name] for name in ("forward", "total") if name in one.phases)
    cells.append(
        ", ".join("?" if timing.bound_ms is None else f"{timing.bound_ms / timing.ours_ms:.0%}" for timing in shares)
    )
    return f"| {' | '.join(cells)} |"


def _times(phase: Figures) -> str:
    compiled = "?" if phase.compile_ms is None else f"{phase.compile_ms:.3f}"
    return f"{phase.eager_ms:.3f}, {compiled}, {phase.ours_ms:.3f}"


def _ratio(phase: Figures, searched: bool) -> str:
    return "" if phase.ratio is None else f"{phase.ratio:.2f}x [{phase.low:.2f}]" + "*" * (not searched)


def read(path: Path) -> dict[str, Recorded]:
    """The recorded ratios; empty if there is no such file."""
    return _FILE.validate_json(path.read_bytes()) if path.exists() else {}


def write(path: Path, rows: Mapping[str, Recorded]) -> None:
    """Replace the file as a whole."""
    beside = path.with_suffix(".part")
    document = {problem: one.model_dump(mode="json") for problem, one in sorted(rows.items())}
    beside.write_text(json.dumps(document, indent=1) + "\n")
    beside.replace(path)


def in_order(names: str | None, files: Sequence[Path]) -> list[Path]:
    """The files to grade: those given, the named problems' in the order of the names, or all, FIRST first."""
    if files:
        return list(files)
    if names:
        return [SOLUTIONS / f"{name}.py" for name in names.split(",")]
    known = sorted(path.stem for path in SOLUTIONS.glob("*.py"))
    ordered = [*(name for name in FIRST if name in known), *(name for name in known if name not in FIRST)]
    return [SOLUTIONS / f"{name}.py" for name in ordered]


def main(arguments: Sequence[str]) -> int:
    """Measure, print, record; return 1 if a solution has no correct verdict."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--problems", metavar="a,b", help="these problems' solutions, in this order")
    parser.add_argument("--record", nargs="?", type=Path, const=RECORDED, metavar="PATH", help="keep the figures here")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no problem that would end after so many")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--again", action="store_true", help="measure what was recorded, too")
    parser.add_argument("--quick", action="store_true", help="with fewer rounds; for a first look")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("grader.grading.timing").setLevel(logging.INFO)  # where the baselines' seconds go
    known = read(chosen.record or RECORDED)
    files = [file for file in in_order(chosen.problems, chosen.files) if chosen.again or not _is_known(file, known)]
    rows = dict[str, Recorded]()
    try:
        for verdict in _graded(files, chosen.seconds, device=chosen.device, quick=chosen.quick):
            rows[verdict.problem] = recorded(verdict)
            print(row(verdict.problem, rows[verdict.problem]), flush=True)
            if chosen.record is not None and verdict.status == "correct":
                known[verdict.problem] = rows[verdict.problem]
                write(chosen.record, known)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    shown = rows or known
    for machine in dict.fromkeys((one.device, one.versions, one.date) for one in shown.values()):
        print(f"\n{', '.join(machine)}\n")
        print(table({name: one for name, one in shown.items() if (one.device, one.versions, one.date) == machine}))
    return 0 if all(one.status == "correct" for one in rows.values()) else 1


def _graded(files: Sequence[Path], seconds: float, **options: Any) -> Generator[Verdict, None, None]:
    """Verdicts, until the next would come after so many seconds; says on stderr what each took and found."""
    began = started = time.monotonic()
    longest = 0.0
    if not files or not seconds:
        return
    with closing(verdicts(files, **options)) as reached:
        for verdict in reached:
            now = time.monotonic()
            longest, took, started = max(longest, now - started), now - started, now
            print(f"{verdict.problem}: {verdict.status} in {took:.0f} s, {verdict.seconds}", file=sys.stderr)
            for diagnosis in verdict.diagnoses:
                print(f"    {diagnosis.code}: {diagnosis.message}", file=sys.stderr, flush=True)
            yield verdict
            if now + longest > began + seconds:
                return


def _is_known(file: Path, known: Mapping[str, Recorded]) -> bool:
    """Whether this source's figures are recorded, over all modes; on another machine, give --again."""
    one = known.get(file.stem)
    source = digest(file.read_text())
    return one is not None and one.source == source and one.searched


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
