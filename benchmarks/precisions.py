"""Verdicts in half precision beside those of KernelBench's evaluator, on drawn problems of level 1.

    python -m benchmarks.precisions --checkout DIR [--precision bf16] [--count 10] [--seed 0] [--seconds 80] --out FILE

Each problem's reference is graded as a submission, and so are mutants of it: `float32` computes in float32 and rounds
once, `scaled` is 0.6% too large, which passes a tolerance of 1e-2, `wrong` is 5% too large, `detached` has no graph.
The evaluator runs 5 correctness trials and compares the forward alone. Rows are appended to FILE, and those in it are
not repeated. The table shows where the two differ.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.kernelbench import as_submission
from grader import Grader, Problem
from grader.catalog.problems import find_problems
from grader.verdict.models import Status, Verdict

MUTANTS = {
    "reference": "return y",
    "scaled": "return 1.006 * y",
    "wrong": "return 1.05 * y",
    "detached": "return y.detach()",
    "float32": "",
}
WRAPPER = """

class ModelNew(Reference):
    def forward(self, *inputs):
        {call}
        {end}
"""
IN_FLOAT32 = """wide = [_float(value) for value in inputs]
        state = {f"of.{name}": _float(value) for name, value in self.state_dict(keep_vars=True).items()}
        y = torch.func.functional_call(_Plain(self), state, tuple(wide))"""
PLAIN = """

def _float(value):
    return value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value


class _Plain(nn.Module):
    def __init__(self, of):
        super().__init__()
        self.of = of

    def forward(self, *inputs):
        return Reference.forward(self.of, *inputs)
"""
EVALUATE = """
import contextlib, importlib.util, io, json, sys, torch
from unittest.mock import MagicMock
for name in ("openai", "litellm", "dotenv", "tqdm", "requests"):  # its generation of kernels needs them
    if importlib.util.find_spec(name) is None:
        sys.modules[name] = MagicMock()
from kernelbench import eval as evaluator
for line in sys.stdin:
    one = json.loads(line)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            result = evaluator.eval_kernel_against_ref(
                original_model_src=one["reference"], custom_model_src=one["source"], num_correct_trials=5,
                device=torch.device("cuda:0"), precision=getattr(torch, one["dtype"]))
        found = {"correct": bool(result and result.correctness), "why": str(result and result.metadata)[:300]}
    except Exception as error:
        found = {"correct": False, "why": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(found), flush=True)
"""
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--precision", choices=DTYPES, default="bf16")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing more after this many")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("precisions.jsonl"))
    chosen = parser.parse_args()
    begin = time.monotonic()
    problems = [one for one in find_problems([chosen.checkout]).problems.values() if one.path.parent.name == "level1"]
    problems.sort(key=lambda problem: str(problem.path))
    random.Random(chosen.seed).shuffle(problems)
    known = {(row["problem"], row["mutant"], row["precision"]) for row in rows(chosen.out)}
    with Grader(device=chosen.device, precision=chosen.precision, quick=True) as grader, _evaluator(chosen) as theirs:
        for problem in problems[: chosen.count]:
            for mutant in MUTANTS:
                if (problem.id, mutant, chosen.precision) in known or time.monotonic() - begin > chosen.seconds:
                    continue
                text = source(problem, mutant)
                row = ours(next(grader.grade_many([(problem, text)])))
                row |= {"problem": problem.id, "mutant": mutant, "precision": chosen.precision}
                row["evaluator"] = _ask(theirs, problem, text, chosen)
                with chosen.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print(table(rows(chosen.out)))


def source(problem: Problem, mutant: str) -> str:
    """The submission: the reference, or a mutant of it."""
    if mutant == "reference":
        return as_submission(problem.source)
    text = re.sub(r"\bModel\b", "Reference", problem.source)
    if mutant == "float32":
        end = "return y.to(next(v.dtype for v in inputs if _float(v) is not v))"
        return text + PLAIN + WRAPPER.format(call=IN_FLOAT32, end=end)
    return text + WRAPPER.format(call="y = super().forward(*inputs)", end=MUTANTS[mutant])


def ours(verdict: Verdict) -> dict[str, Any]:
    """The status, whether the forward passed, and the first diagnosis."""
    forward = verdict.status in (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)
    first = verdict.diagnoses[0].message if verdict.diagnoses else ""
    error = None if verdict.forward is None else verdict.forward.rel_rms_error
    return {"status": verdict.status.value, "forward": forward, "why": first[:400], "rel_rms_error": error}


def rows(path: Path) -> list[dict[str, Any]]:
    """What was measured so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def table(found: list[dict[str, Any]]) -> str:
    """One line for each submission, marked where the forward is judged otherwise."""
    lines = ["precision  problem  mutant  ours  evaluator"]
    for row in found:
        theirs = row["evaluator"]
        judged = None if theirs is None else theirs["correct"]
        differs = " DIFFERS" if judged is not None and judged is not row["forward"] else ""
        why = f": {row['why'][:160]} | {theirs['why'][:160]}" if differs else ""
        lines.append(f"{row['precision']}  {row['problem']}  {row['mutant']}  {row['status']}  {judged}{differs}{why}")
    return "\n".join(lines)


def _evaluator(chosen: argparse.Namespace) -> subprocess.Popen[str]:
    """The evaluator's process, which takes one submission a line."""
    return subprocess.Popen(
        [sys.executable, "-c", EVALUATE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "PYTHONPATH": str(chosen.checkout.resolve() / "src")},
    )


def _ask(evaluator: subprocess.Popen[str], problem: Problem, text: str, chosen: argparse.Namespace) -> Any:
    """Its answer; None if it is gone, as without a GPU."""
    line = json.dumps({"reference": problem.source, "source": text, "dtype": DTYPES[chosen.precision]})
    try:
        assert evaluator.stdin is not None
        assert evaluator.stdout is not None
        evaluator.stdin.write(line + "\n")
        evaluator.stdin.flush()
        return json.loads(evaluator.stdout.readline())
    except (OSError, ValueError):
        return None


if __name__ == "__main__":
    main()
