"""Measures how long the first page takes with many verdicts, from a static site and from the server.

    python -m benchmarks.pages                     10,000 verdicts in a temporary folder
    python -m benchmarks.pages --keep pages.d      keep the database there and use it again

The verdicts are made up and as large as real ones: 40 authors, 250 problems, one GPU and one CPU, every status. Needs
the extra `serve`, Playwright, and chromium on PATH.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

from db import Store
from grader.report.site import write_site
from grader.verdict.models import Device, Diagnosis, Environment, Problem, Settings, Status, Submission, Verdict
from grader.verdict.stages import (
    BackwardResult,
    Baseline,
    BuildResult,
    ClockReading,
    FigureTiming,
    ForwardResult,
    KernelUse,
    StageStatus,
    TensorCheck,
    TimingResult,
    VariantResult,
)

ROOT = Path(__file__).resolve().parents[1]
START = datetime(2026, 1, 1, tzinfo=UTC)
OPERANDS = ("x", "bias", "conv_transpose.weight", "conv_transpose.bias")
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
STATUSES = (
    (Status.CORRECT, 50),
    (Status.MISSING_BACKWARD, 20),
    (Status.WRONG_OUTPUT, 12),
    (Status.WRONG_BACKWARD, 6),
    (Status.BUILD_ERROR, 6),
    (Status.RUNTIME_ERROR, 4),
    (Status.TIMEOUT, 2),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--count", type=int, default=10_000, help="verdicts in the database")
    parser.add_argument("--keep", type=Path, help="keep the database in this folder")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        folder.mkdir(exist_ok=True)
        database = folder / f"{arguments.count}.db"
        if not database.exists():
            fill(database, arguments.count)
        print(f"{arguments.count} verdicts, database {database.stat().st_size / 1e6:.0f} MB")
        measure_served(database)
        measure_static(database, folder / "site")


def measure_static(database: Path, out: Path) -> None:
    """Write the site, write it again with one verdict more, and open its first page from the folder."""
    shutil.rmtree(out, ignore_errors=True)
    for what in ("grader report", "the same again", "with one verdict more"):
        if what == "with one verdict more":
            fill(database, 1)
        started, cpu_started = time.perf_counter(), cpu_seconds()
        with Store.open(database, must_exist=True) as store:
            written = write_site(store, out)
        wall, cpu = time.perf_counter() - started, cpu_seconds() - cpu_started
        print(f"{what}: {written.pages} pages in {wall:.1f} s, {cpu:.1f} s of CPU")
    print(f"static index: {written.index.stat().st_size / 1e6:.2f} MB, opened in {opened(written.index.as_uri())} s")
    shutil.rmtree(out)


def cpu_seconds() -> float:
    """CPU time of this process and of those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def measure_served(database: Path) -> None:
    """Start the server and request its first page twice, the first time without a cache."""
    with server(database) as address:
        first, again = (request_seconds(address) for _ in range(2))
        print(f"served index: first request {first:.2f} s, second {again:.3f} s, opened in {opened(address)} s")


def opened(address: str) -> str:
    """Seconds until chromium has loaded the page, the median of five, each in a new window."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM_FLAGS)
        took = []
        for _ in range(5):
            page = browser.new_context().new_page()
            started = time.perf_counter()
            page.goto(address, wait_until="load")
            took.append(time.perf_counter() - started)
            page.close()
        browser.close()
    return f"{sorted(took)[2]:.2f}"


def request_seconds(address: str) -> float:
    started = time.perf_counter()
    with urllib.request.urlopen(address) as answer:
        answer.read()
    return time.perf_counter() - started


@contextmanager
def server(database: Path) -> Iterator[str]:
    """The address of a server that runs in its own process."""
    command = [sys.executable, "-m", "grader", "serve", "--db", str(database), "--port", "0"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"http://\S+", line):
                yield found[0]
                return
        raise SystemExit("the server did not start")
    finally:
        process.terminate()
        process.wait()


# ---------------------------------------------------------------------------------------------- made-up verdicts


def fill(database: Path, count: int) -> None:
    """Fill a database, with the same verdicts each time."""
    chance = random.Random(0)
    problems = [
        Problem(id=f"conv{number}_bias_residual_mul", path=Path(f"/problems/{number}.py"), source=f"n = {number}\n")
        for number in range(250)
    ]
    kernel = (ROOT / "reference_solutions" / "conv2d_mul_leaky_relu_gelu.py").read_text()
    with Store.open(database) as store, store.run(["grade", "made-up"]) as run:
        for number in range(count):
            problem = problems[number % len(problems)]
            submission = Submission(
                author=f"author{chance.randrange(40):02}",
                label=f"v{number // 1000}",
                problem_id=problem.id,
                path=f"{number}.py",
                source=f"# {number // 2}\n{kernel}",
            )
            store.save(made_up(chance, submission, problem, number), submission, problem, run)


def made_up(chance: random.Random, submission: Submission, problem: Problem, number: int) -> Verdict:
    (status,) = chance.choices([one for one, _ in STATUSES], [weight for _, weight in STATUSES])
    right_forward = status in (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)
    on_gpu = chance.random() < 0.8
    device = Device.CUDA if on_gpu else Device.CPU
    ended = {Status.CORRECT: StageStatus.PASSED}.get(status, StageStatus.FAILED)
    diagnosis = Diagnosis(code="output_wrong", stage="forward", message="`output` is wrong at index (0, 3).")
    return Verdict(
        submission=submission.name,
        author=submission.author,
        label=submission.label,
        problem=submission.problem_id,
        device=device,
        status=status,
        diagnoses=() if status is Status.CORRECT else (diagnosis,),
        kernels=tuple(KernelUse(name=f"fused_kernel_{one}<float, 4>", calls=1, share=0.1) for one in range(8)),
        build=BuildResult(
            status=StageStatus.FAILED if status is Status.BUILD_ERROR else StageStatus.PASSED,
            log_tail="[1/2] nvcc -O3 main.cu\n" * 20,
        ),
        forward=ForwardResult(
            status=StageStatus.PASSED if right_forward else StageStatus.FAILED, variants=_variants(chance, ("output",))
        ),
        backward=BackwardResult(status=ended, gradients=_checks(chance, OPERANDS), variants=_variants(chance, OPERANDS))
        if right_forward
        else None,
        timing=_timing(chance, status) if right_forward else None,
        environment=Environment(
            device=device,
            device_name="A made-up GPU" if on_gpu else "A made-up CPU",
            torch_version="2.13.0",
            compiler="g++ 12.2.0",
            python_version="3.11.7",
            grader_version="0.1.0",
            sandbox="bubblewrap",
        ),
        settings=Settings(device=device),
        source_hash=submission.source_hash,
        problem_hash=problem.source_hash,
        created_at=START + timedelta(minutes=number),
    )


def _variants(chance: random.Random, names: tuple[str, ...]) -> tuple[VariantResult, ...]:
    return tuple(
        VariantResult(variant=variant, status=StageStatus.PASSED, seed=1, tensors=_checks(chance, names))
        for variant in ("small", "odd", "batch1", "full")
    )


def _checks(chance: random.Random, names: tuple[str, ...]) -> tuple[TensorCheck, ...]:
    return tuple(
        TensorCheck(
            name=name,
            status="passed",
            shape=(4, 16, 8, 32),
            dtype="float32",
            max_abs_error=chance.random() * 1e-6,
            rel_rms_error=chance.random() * 1e-6,
            baseline_rel_rms_error=chance.random() * 1e-6,
            worst_index=(1, 9, 3, 18),
            worst_candidate=chance.random(),
            worst_reference=chance.random(),
            passes_1e_4=True,
            passes_1e_2=True,
        )
        for name in names
    )


def _timing(chance: random.Random, status: Status) -> TimingResult:
    total = _phase(chance) if status is Status.CORRECT else None
    clocks = tuple(ClockReading(round=one, sm_mhz=1980, memory_mhz=3201) for one in range(20))
    baselines = (Baseline(name="compile", forward_ms=1.0, total_ms=3.0),)
    return TimingResult(
        status=StageStatus.PASSED,
        variant="full",
        forward=_phase(chance),
        total=total,
        clocks=clocks,
        baselines=baselines,
    )


def _phase(chance: random.Random) -> FigureTiming:
    speedup = chance.lognormvariate(0.2, 0.5)
    candidate = chance.uniform(0.2, 5)
    return FigureTiming(
        candidate_ms=candidate,
        reference_ms=candidate * speedup,
        speedup=speedup,
        ci_low=speedup * chance.uniform(0.93, 0.999),
        ci_high=speedup * chance.uniform(1.001, 1.07),
        bound_ms=candidate * chance.uniform(0.1, 0.9),
        rounds=20,
        candidate_samples_ms=tuple(candidate * chance.uniform(0.99, 1.01) for _ in range(20)),
        reference_samples_ms=tuple(candidate * speedup * chance.uniform(0.99, 1.01) for _ in range(20)),
    )


if __name__ == "__main__":
    main()
