"""Verdicts in half precision beside those of KernelBench's evaluator, on drawn problems of level 1.

    python -m benchmarks.precisions --checkout DIR [--precision bf16] [--count 10] [--seed 0] [--seconds 190] --out FILE

Each problem's reference is graded as a submission, and so are mutants of it: `float32` computes in float32 and rounds
once, `scaled` is 0.6% too large, which passes a tolerance of 1e-2, `wrong` is 5% too large, `detached` has no graph.
The evaluator runs 5 correctness trials and compares the forward alone, beside the grader, in processes of its own: its
inputs are drawn on one core. The grader times two rounds only. Of the drawn problems, those with the smallest inputs
come first. Each answer is appended to FILE at once, and those in it are not repeated. What takes longer than --each
seconds is left, and says so. The table shows where the two differ.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import torch

from benchmarks.kernelbench_evaluator import as_submission
from benchmarks.kernelbench_rows import rows
from grader import GraderPool, Problem
from grader.catalog.problems import find_problems
from grader.errors import NotGraded
from grader.verdict.models import Device, Status, Verdict

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
        why = str(result and result.metadata)
        short = "out of memory" in why  # the grader beside it holds some
        found = {"correct": None if short else bool(result and result.correctness), "why": why[:300]}
    except Exception as error:
        found = {"correct": None, "why": f"{type(error).__name__}: {error}"[:300]}
    print(json.dumps(found), flush=True)
"""
Work = tuple[Problem, str]
"""A problem and the name of a mutant."""
NOT_JUDGED = {Status.OUT_OF_MEMORY, Status.TIMEOUT, Status.NOT_RUN, Status.GRADER_ERROR}
"""On a GPU that is shared with the evaluator, these say nothing about the source."""
ENDING_SECONDS = 5.0
"""Time for a process to end after its output."""
ENGINE = "benchmarks.shared_gpu:once_timed"
DTYPES = {"bf16": "bfloat16", "fp16": "float16"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkout", type=Path, required=True, metavar="DIR", help="a KernelBench checkout")
    parser.add_argument("--precision", choices=DTYPES, default="bf16")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing more after this many")
    parser.add_argument("--each", type=float, default=90.0, help="seconds of one submission in either grader")
    parser.add_argument("--evaluators", type=int, default=3, help="processes of the evaluator")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("precisions.jsonl"))
    chosen = parser.parse_args()
    begin = time.monotonic()
    problems = [one for one in find_problems([chosen.checkout]).problems.values() if one.path.parent.name == "level1"]
    problems.sort(key=lambda problem: str(problem.path))
    random.Random(chosen.seed).shuffle(problems)
    problems = sorted(problems[: chosen.count], key=input_bytes)
    known = {(row["problem"], row["mutant"], row["precision"], row["by"]) for row in rows([chosen.out])}
    writing = threading.Lock()

    def note(problem: Problem, mutant: str, by: str, answer: dict[str, Any]) -> None:
        row = {"problem": problem.id, "mutant": mutant, "precision": chosen.precision, "by": by, **answer}
        with writing, chosen.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row)[:200], file=sys.stderr, flush=True)

    def left(by: str) -> list[Work]:
        pairs = itertools.product(problems, MUTANTS)
        return [pair for pair in pairs if (pair[0].id, pair[1], chosen.precision, by) not in known]

    def remaining() -> float:
        return float(chosen.seconds) - (time.monotonic() - begin)

    waiting = queue.SimpleQueue[Work]()
    for pair in left("evaluator"):
        waiting.put(pair)

    def evaluate() -> None:
        for (problem, mutant), answer in ask_evaluator(waiting, chosen, remaining):
            note(problem, mutant, "evaluator", answer)

    beside = [threading.Thread(target=evaluate) for _ in range(chosen.evaluators)]
    for thread in beside:
        thread.start()
    for (problem, mutant), answer in ask_ours(left("ours"), chosen, remaining):
        note(problem, mutant, "ours", answer)
    for thread in beside:
        thread.join()
    print(table(rows([chosen.out])))


def input_bytes(problem: Problem) -> int:
    """Bytes of the inputs that the problem makes, without making them."""
    names: dict[str, Any] = {}
    with torch.device("meta"):
        exec(compile(problem.source, str(problem.path), "exec"), names)
        return sum(value.nbytes for value in names["get_inputs"]() if isinstance(value, torch.Tensor))


def ask_ours(
    work: Sequence[Work], chosen: argparse.Namespace, remaining: Callable[[], float]
) -> Iterator[tuple[Work, dict[str, Any]]]:
    """The answer to each mutant that is graded before the time ends, one after another in one process."""
    if not work or remaining() <= 0:
        return
    place: dict[str, Any] = {"workers": 1} if Device(chosen.device) is Device.CPU else {"gpus": "0"}
    options = {"device": chosen.device, "precision": chosen.precision, "quick": True, "limit_seconds": chosen.each}
    with GraderPool(**place, **options, engine=ENGINE) as pool:
        futures = [pool.submit((problem, source(problem, mutant))) for problem, mutant in work]
        for pair, future in zip(work, futures, strict=True):
            try:
                yield pair, ours(future.result(max(0.0, remaining())))
            except NotGraded as error:
                yield pair, {"status": "late", "forward": None, "why": str(error)}
            except TimeoutError:
                return


def ask_evaluator(
    waiting: queue.SimpleQueue[Work], chosen: argparse.Namespace, remaining: Callable[[], float]
) -> Iterator[tuple[Work, dict[str, Any]]]:
    """Answers to mutants that are waiting, from one process until it ends or is late; then from another."""
    ended = False
    while not ended and remaining() > 0:
        with tempfile.TemporaryFile("w+") as errors, _evaluator(chosen, errors) as process:
            lines: queue.Queue[str] = queue.Queue()
            threading.Thread(target=_read, args=(process, lines), daemon=True).start()
            answer: dict[str, Any] | None = {}
            while answer is not None and remaining() > 0:
                try:
                    pair = waiting.get_nowait()
                except queue.Empty:
                    ended = True
                    break
                answer, why = _answer(process, lines, pair, chosen, remaining()), "no answer in time"
                if answer is None and process.poll() is not None:
                    errors.seek(0)
                    why = f"the evaluator ended: {errors.read()[-300:]}"
                if answer is not None or remaining() > 0:
                    yield pair, answer or {"correct": None, "why": why}
            process.kill()
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError):  # it may have ended before it read the last line
                process.stdin.close()


def _answer(
    process: subprocess.Popen[str], lines: queue.Queue[str], pair: Work, chosen: argparse.Namespace, seconds: float
) -> dict[str, Any] | None:
    """The process's answer; None if it ends or is late."""
    problem, mutant = pair
    one = {"reference": problem.source, "source": source(problem, mutant), "dtype": DTYPES[chosen.precision]}
    assert process.stdin is not None
    with contextlib.suppress(queue.Empty, BrokenPipeError):
        process.stdin.write(json.dumps(one) + "\n")
        process.stdin.flush()
        line = lines.get(timeout=max(0.0, min(chosen.each, seconds)))
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(ENDING_SECONDS)
    return None


def _evaluator(chosen: argparse.Namespace, errors: IO[str]) -> subprocess.Popen[str]:
    """A process of the evaluator, which answers each line with a line."""
    return subprocess.Popen(
        [sys.executable, "-c", EVALUATE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        cwd=tempfile.gettempdir(),
        env={**os.environ, "PYTHONPATH": str(chosen.checkout.resolve() / "src")},
    )


def _read(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Pass on the answers; an empty line at the end."""
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("{"):
            lines.put(line)
    lines.put("")


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
    right = verdict.status in (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)
    forward = None if verdict.status in NOT_JUDGED else right
    first = verdict.diagnoses[0].message if verdict.diagnoses else ""
    error = None if verdict.forward is None else verdict.forward.rel_rms_error
    return {"status": verdict.status.value, "forward": forward, "why": first[:400], "rel_rms_error": error}


def table(found: list[dict[str, Any]]) -> str:
    """One line for each submission, marked where the forward is judged otherwise."""
    joined: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in found:
        joined.setdefault((row["precision"], row["problem"], row["mutant"]), {})[row["by"]] = row
    lines = ["precision  problem  mutant  ours  evaluator"]
    for key, answers in joined.items():
        one, other = answers.get("ours"), answers.get("evaluator")
        status, forward = ("-", None) if one is None else (one["status"], one["forward"])
        judged = None if other is None else other["correct"]
        differs = None not in (forward, judged) and forward is not judged
        why = f" DIFFERS: {one['why'][:160]} | {other['why'][:160]}" if differs and one and other else ""
        lines.append(f"{'  '.join(key)}  {status}  {judged}{why}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
