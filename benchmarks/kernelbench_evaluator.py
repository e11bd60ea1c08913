"""Times KernelBench's own evaluator: 5 correctness and 100 performance trials, forward only, a process per problem."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.child import ask
from grader import Problem

EVALUATE = """
import importlib.util, json, sys, torch
from pathlib import Path
from unittest.mock import MagicMock
for name in ("openai", "litellm", "dotenv", "tqdm", "requests"):  # its generation of kernels needs them
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = MagicMock()
from kernelbench import eval as evaluator
reference, submission = (Path(path).read_text() for path in sys.argv[1:3])
result = evaluator.eval_kernel_against_ref(
    original_model_src=reference, custom_model_src=submission, measure_performance=True,
    num_correct_trials=5, num_perf_trials=100, device=torch.device("cuda:0"))
print(json.dumps({"compiled": result.compiled, "correct": result.correctness}))
"""


def as_submission(source: str) -> str:
    """The reference with its class renamed to ModelNew."""
    return re.sub(r"\bModel\b", "ModelNew", source)


def compare(problems: Sequence[Problem], seconds: Mapping[str, float], checkout: Path) -> None:
    """Print the evaluator's seconds on these problems, next to the grader's `seconds` by id."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src")}
    both = []
    for problem in problems:
        with tempfile.NamedTemporaryFile("w", suffix=".py") as submission:
            submission.write(as_submission(problem.source))
            submission.flush()
            started, own = time.monotonic(), seconds.get(problem.id)
            try:
                answer = ask(EVALUATE, problem.path, submission.name, environment=environment)
            except SystemExit as error:
                answer = {"correct": str(error)[-200:]}
            took = time.monotonic() - started
        print(f"{problem.id[:44]:44} ours {own} s, KernelBench {took:.1f} s, {answer}", flush=True)
        both += [] if own is None else [(own, took)]
    if both:
        print(f"KernelBench over ours: {sum(other for _, other in both) / sum(own for own, _ in both):.1f}x")
