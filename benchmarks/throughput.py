"""Measures the seconds per submission on one GPU, of this grader and of KernelBench's evaluator.

    python -m benchmarks.throughput [--count 32] [--full-count 8] [--kernelbench CHECKOUT] [--kernelbench-count 8]

The batch repeats the shipped correct CUDA submissions to the three convolution problems, with a different last line in
each, so that each has its own build. The grader runs forward, backward and timing in the sandbox: cold, then with
cached builds, with --quick and in full. KernelBench builds in parallel and then evaluates one after another, each in
its own process, as its batch script does: forward only, with 5 correctness and 100 performance trials. It gets a
smaller part of the batch because it takes longer; compare the seconds per submission. Needs a GPU and nvcc.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.child import ask
from grader.catalog.own_folders import shipped
from grader.catalog.problems import Catalog, find_problems
from grader.catalog.submissions import find_submissions
from grader.grading.pipeline import Pipeline
from grader.machine.toolchain import find_cuda_home
from grader.options import GraderOptions
from grader.verdict.models import Submission

PROBLEMS = (
    "conv_transpose3d_leaky_relu_mul_leaky_relu_max",
    "conv2d_mul_leaky_relu_gelu",
    "conv_transpose3d_bias_residual_mul_residual",
)
CORRECT = (
    "reference_solutions/conv_transpose3d_leaky_relu_mul_leaky_relu_max.py",
    "reference_solutions/conv2d_mul_leaky_relu_gelu.py",
    "reference_solutions/conv_transpose3d_bias_residual_mul_residual.py",
    "submissions/kestrel/conv_transpose3d_leaky_relu_mul_leaky_relu_max.py",
    "submissions/plover/conv2d_mul_leaky_relu_gelu__repaired.py",
)
CORRECTNESS_TRIALS, PERFORMANCE_TRIALS = 5, 100
"""KernelBench's defaults for a batch."""

KERNELBENCH = """
import json, sys
from pathlib import Path
from kernelbench import eval as evaluator
doing, reference, submission, folder = sys.argv[1], *(Path(path) for path in sys.argv[2:5])
if doing == "build":
    built = evaluator.build_compile_cache(submission.read_text(), build_dir=str(folder))
    print(json.dumps({"compiled": built[0]}))
else:
    import torch
    found = evaluator.eval_kernel_against_ref(
        original_model_src=reference.read_text(), custom_model_src=submission.read_text(), measure_performance=True,
        num_correct_trials=int(sys.argv[5]), num_perf_trials=int(sys.argv[6]), build_dir=str(folder),
        device=torch.device("cuda:0"))
    print(json.dumps({"compiled": found.compiled, "correct": found.correctness, "us": found.runtime}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=32, help="submissions in the batch")
    parser.add_argument("--kernelbench", type=Path, metavar="CHECKOUT", help="compare with this KernelBench checkout")
    parser.add_argument("--kernelbench-count", type=int, default=8, help="submissions that KernelBench evaluates")
    parser.add_argument("--full-count", type=int, default=0, help="submissions regraded in full")
    arguments = parser.parse_args()
    catalog = find_problems()
    batch = distinct(catalog, arguments.count)
    each: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        each["cold, --quick"] = ours(catalog, batch, Path(folder), quick=True)
        each["cached builds, --quick"] = ours(catalog, batch, Path(folder), quick=True)
        if arguments.full_count:
            each["cached builds, in full"] = ours(catalog, batch[: arguments.full_count], Path(folder), quick=False)
    if arguments.kernelbench:
        theirs = kernelbench(arguments.kernelbench, catalog, batch[: arguments.kernelbench_count])
        print(f"cold, KernelBench's seconds divided by this grader's: {theirs / each['cold, --quick']:.1f}")


def distinct(catalog: Catalog, count: int) -> list[Submission]:
    """`count` different sources, cycling over the problems."""
    root = shipped("problems").parent
    correct = find_submissions([root / path for path in CORRECT], catalog).submissions
    return [
        one.model_copy(update={"author": f"author{number}", "source": f"{one.source}\n# {number}\n"})
        for number, one in zip(range(count), itertools.cycle(correct), strict=False)
    ]


def ours(catalog: Catalog, batch: Sequence[Submission], cache: Path, *, quick: bool) -> float:
    """Seconds of each submission."""
    started = time.monotonic()
    with Pipeline(GraderOptions(device="cuda", quick=quick, build_cache=cache)) as grader:
        work = [(catalog.problem(one.problem_id), one) for one in batch]
        verdicts, ended = [], [started]
        for verdict in grader.grade_many(grader.request(*pair) for pair in work):
            verdicts.append(verdict)
            ended.append(time.monotonic())
    each = (time.monotonic() - started) / len(batch)
    stages = {
        name: sum(getattr(verdict.seconds, name) or 0.0 for verdict in verdicts) / len(batch)
        for name in ("build", "start", "forward", "backward", "timing", "inspection")
    }
    statuses = ", ".join(sorted({str(verdict.status) for verdict in verdicts}))
    how = "--quick" if quick else "in full"
    spent = ", ".join(f"{name} {value:.2f}" for name, value in stages.items())
    kernels = defaultdict[str, list[float]](list)
    for one, (since, until) in zip(batch, itertools.pairwise(ended), strict=True):
        kernels["/".join(Path(one.path).parts[-2:])].append(until - since)
    medians = "".join(f"\n    {statistics.median(seconds):.2f} {path}" for path, seconds in kernels.items())
    peak = max((verdict.backward.peak_device_bytes or 0 for verdict in verdicts if verdict.backward), default=0) / 2**30
    print(
        f"ours, {len(batch)} {how}: {each:.2f} s each ({spent}); up to the backward {peak:.1f} GiB at most; {statuses}"
        f"; medians by kernel:{medians}",
        flush=True,
    )
    return each


def kernelbench(checkout: Path, catalog: Catalog, batch: Sequence[Submission]) -> float:
    """Seconds of each submission."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        samples = []
        for number, one in enumerate(batch):
            reference, sample = folder / f"reference{number}.py", folder / f"sample{number}.py"
            reference.write_text(catalog.problem(one.problem_id).source)
            sample.write_text(one.source)
            samples.append((reference, sample, folder / f"build{number}"))
        started = time.monotonic()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(lambda sample: _kernelbench(checkout, "build", *sample), samples))
        built = time.monotonic()
        results = [_kernelbench(checkout, "evaluate", *sample) for sample in samples]
        ended = time.monotonic()
    each = (ended - started) / len(batch)
    correct = sum(bool(one["correct"]) for one in results)
    print(
        f"KernelBench, {len(batch)}: {each:.2f} s each (building {(built - started) / len(batch):.2f}, "
        f"evaluating {(ended - built) / len(batch):.2f}); {correct} correct",
        flush=True,
    )
    return each


def _kernelbench(checkout: Path, doing: str, reference: Path, sample: Path, folder: Path) -> dict[str, Any]:
    path = os.pathsep.join([str(checkout / "src"), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "TORCH_CUDA_ARCH_LIST": "9.0", "CUDA_HOME": str(find_cuda_home())}
    trials = CORRECTNESS_TRIALS, PERFORMANCE_TRIALS
    return ask(KERNELBENCH, doing, reference, sample, folder, *trials, environment=environment)


if __name__ == "__main__":
    main()
