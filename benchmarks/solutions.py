#!/usr/bin/env python3
"""Grade the reference solutions against torch.compile, and print the table of docs/explanation/measured.md.

python -m benchmarks.solutions [--problems a,b] [--record [PATH]] [--seconds N] [--each N] [FILE ...]

Grades the reference solutions, or the given files, each by a `grader grade --baselines` of its own, which may take
`--each` seconds. With --record each figure is kept as soon as it is there, and what was recorded of the same source is
not measured again, so that the same command continues. `pytest -m gpu tests/test_solution_speed.py` compares
with reference_solutions/recorded.json. `--seconds 0` grades nothing and prints the table of what was recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from db.against import COMPILED, over_compile
from grader.verdict.models import Verdict
from grader.verdict.stages import TimingResult
from grader.verdict.value import Value, digest

SOLUTIONS = Path(__file__).parents[1] / "reference_solutions"
RECORDED = SOLUTIONS / "recorded.json"
FIRST = (
    "conv2d_mul_leaky_relu_gelu",
    "conv_transpose3d_bias_residual_mul_residual",
    "conv_transpose3d_leaky_relu_mul_leaky_relu_max",
    "conv2d_batch_norm_silu",
    "embedding_mean_linear_cross_entropy",
    "add_rms_norm_position_ids",
    "batched_matmul_bias_gelu",
    "group_norm_silu",
    "residual_layer_norm",
    "swiglu_mlp",
    "linear_cross_entropy",
)
"""Problems that come first, since their ratios are nearest to what a user would doubt."""
Phase = Literal["forward", "backward", "total"]
PHASES: tuple[Phase, ...] = ("forward", "backward", "total")
LEAST_SECONDS = 30.0
"""What a problem takes at least, with its baselines: more than would fit are not compiled ahead."""
GRACE_SECONDS = 10.0
"""Between the signal that interrupts a grading and the one that kills it."""


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


def measured(file: Path, *, seconds: float = 400.0, options: Sequence[str] = ()) -> Verdict | None:
    """Grade a file with the baselines, in a process of its own; None if it takes longer or has no verdict."""
    with tempfile.TemporaryDirectory() as folder:
        command = [*grade_command(file), *options, "--db", f"{folder}/verdicts.db"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
        try:
            lines = process.communicate(timeout=seconds)[0].splitlines()
        except subprocess.TimeoutExpired:
            lines = []
        finally:
            _end(process)
    with suppress(IndexError, ValidationError):
        return Verdict.model_validate_json(lines[-1])
    return None


def grade_command(file: Path) -> list[str]:
    """The command that grades a file with the baselines and prints the verdict as JSON."""
    command = [sys.executable, "-m", "grader", "--log-level", "info", "grade", str(file)]
    return [*command, "--baselines", "--regrade", "--json"]


def _end(process: subprocess.Popen[str]) -> None:
    """End the process with all that it started."""
    for number in (signal.SIGINT, signal.SIGKILL):
        if process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, number)
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=GRACE_SECONDS)


def build(files: Sequence[Path], seconds: float) -> None:
    """Compile all of them at once, in a process that sees no GPU, so that no grading waits for a compiler."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "grader", "grade", *map(str, files), "--json"]
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        process = subprocess.Popen(
            [*command, "--db", f"{folder}/builds.db"],
            env=environment,
            stdout=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        _end(process)


def table(rows: Mapping[str, Recorded]) -> str:
    """The table in Markdown, in the order of `rows`."""
    heads = [f"{name}: eager, compile, ours (ms) | over compile" for name in PHASES]
    lines = [f"| problem | {' | '.join(heads)} | of the bound |", "| --- " * (2 + 2 * len(PHASES)) + "|"]
    return "\n".join([*lines, *(row(problem, one) for problem, one in rows.items())])


def row(problem: str, one: Recorded) -> str:
    """A problem's row: times, ratios with the lower end of the interval, shares of the bound forward and in total."""
    cells = [f"`{problem}`" + ("" if one.status == "correct" else f" {one.status}")]
    for name in PHASES:
        phase = one.phases.get(name)
        cells += ["", ""] if phase is None else [_times(phase), _ratio(phase)]
    shares = (one.phases[name] for name in ("forward", "total") if name in one.phases)
    cells.append(", ".join("?" if of.bound_ms is None else f"{of.bound_ms / of.ours_ms:.0%}" for of in shares))
    return f"| {' | '.join(cells)} |"


def _times(phase: Figures) -> str:
    compiled = "?" if phase.compile_ms is None else f"{phase.compile_ms:.3f}"
    return f"{phase.eager_ms:.3f}, {compiled}, {phase.ours_ms:.3f}"


def _ratio(phase: Figures) -> str:
    return "" if phase.ratio is None else f"{phase.ratio:.2f}x [{phase.low:.2f}]"


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
    parser.add_argument("--each", type=float, default=240.0, help="limit of one problem")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--again", action="store_true", help="measure what was recorded, too")
    parser.add_argument("--quick", action="store_true", help="with fewer rounds; for a first look")
    chosen = parser.parse_args(arguments)
    began = time.monotonic()
    known = read(chosen.record or RECORDED)
    options = ["--device", chosen.device, *(["--quick"] if chosen.quick else [])]
    files = [file for file in in_order(chosen.problems, chosen.files) if chosen.again or not _is_known(file, known)]
    if chosen.device == "cuda" and chosen.seconds and len(files) > 1:
        build(files[: 1 + int(chosen.seconds / LEAST_SECONDS)], min(chosen.seconds, 300.0))
    rows, right, longest = dict[str, Recorded](), True, 0.0
    for file in files:
        started = time.monotonic()
        left = chosen.seconds - (started - began)
        if left <= longest:
            break
        verdict = measured(file, seconds=min(chosen.each, left), options=options)
        took = time.monotonic() - started
        longest = max(longest, took)
        right &= verdict is not None and verdict.status == "correct"
        if verdict is None:
            print(f"{file.stem}: no verdict after {took:.0f} s", file=sys.stderr, flush=True)
            continue
        print(f"{file.stem}: {verdict.status} in {took:.0f} s, {verdict.seconds}", file=sys.stderr, flush=True)
        for diagnosis in verdict.diagnoses:
            print(f"    {diagnosis.code}: {diagnosis.message}", file=sys.stderr, flush=True)
        rows[verdict.problem] = recorded(verdict)
        print(row(verdict.problem, rows[verdict.problem]), flush=True)
        if chosen.record is not None and verdict.status == "correct":
            known[verdict.problem] = rows[verdict.problem]
            write(chosen.record, known)
    shown = rows or known
    for machine in dict.fromkeys((one.device, one.versions, one.date) for one in shown.values()):
        print(f"\n{', '.join(machine)}\n")
        print(table({name: one for name, one in shown.items() if (one.device, one.versions, one.date) == machine}))
    return 0 if right else 1


def _is_known(file: Path, known: Mapping[str, Recorded]) -> bool:
    """Whether this source's figures are recorded with a ratio; on another machine, give --again."""
    one = known.get(file.stem)
    source = digest(file.read_text())
    return one is not None and one.source == source and any(phase.ratio for phase in one.phases.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
