"""`eval_results.json` as KernelBench's own scripts read it: one level of one run.

Facts of the format, from KernelBench's repository (ScalingIntelligence/KernelBench):

- `scripts/eval_from_generations.py` writes an object from problem number, as text, to a list of results, one a sample,
  with `sample_id`, `compiled`, `correctness`, `metadata`, `runtime` and `runtime_stats`; newer versions of
  `KernelExecResult` have `ref_runtime` and `ref_runtime_stats` too.
- `scripts/benchmark_eval_analysis.py` takes the result with `sample_id` 0, of which there may be one at most, counts
  `compiled` and `correctness`, divides baseline times by `runtime` in the order of the file, and counts a problem that
  is not in the file as failed.
- `runtime` is the mean in milliseconds, whatever the comment on `KernelExecResult` says: what times a kernel there and
  the baseline files are in milliseconds. Not measured is -1.

Our verdicts in those terms:

- KernelBench compares the forward alone, so `correctness` says that the forward matches, even if the backward is
  missing or wrong; `metadata` has the grader's status and the backward's. An integrity violation is not correct.
- `runtime` is the forward's, without a graph. A forward that was not timed, as with a wrong backward, has -1.
- `compiled` says that the file could be imported with all its extensions.
- `not_run` and `grader_error` say nothing about a submission and are left out, as are verdicts on one variant.
- Only the newest verdict on a sample counts. Submissions without a sample number take the free numbers, in the order
  in which they were graded.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from db.choice import Chosen
from grader.errors import UserError
from grader.verdict.models import SAYS_NOTHING, Status, Verdict
from grader.verdict.stages import StageStatus

Result = dict[str, object]

_LEVEL = re.compile(r"level(\d+)")
_NUMBER = re.compile(r"(\d+)_")
NOT_MEASURED = -1.0


@dataclass(frozen=True)
class EvalResults:
    """The file's content, and how many of the selected verdicts it lacks."""

    results: dict[str, list[Result]]
    left_out: int
    """Verdicts that say nothing about a submission of KernelBench's."""
    untimed: int
    """Results that are correct and have no runtime."""


def eval_results(found: Iterable[Chosen], level: int | None = None) -> EvalResults:
    """The results of one author on one level. Raises UserError if there are several of either."""
    placed: list[tuple[int, int, Verdict]] = []
    left_out = 0
    for one in found:
        place = _place(one.problem_path)
        if place is None or one.verdict is None or one.verdict.status in SAYS_NOTHING or one.verdict.settings.variant:
            left_out += 1
        elif level is None or place[0] == level:
            placed.append((*place, one.verdict))
    _check_one({verdict.author for _, _, verdict in placed}, "authors", "--author")
    _check_one({str(one) for one, _, _ in placed}, "levels", "--level")
    by_problem: dict[int, list[Verdict]] = defaultdict(list)
    for _, number, verdict in placed:
        by_problem[number].append(verdict)
    results = {str(number): _samples(by_problem[number]) for number in sorted(by_problem)}
    flat = [result for samples in results.values() for result in samples]
    untimed = sum(1 for result in flat if result["correctness"] and result["runtime"] == NOT_MEASURED)
    return EvalResults(results, left_out, untimed)


def _place(problem: Path) -> tuple[int, int] | None:
    """(level, problem number) of a file in a KernelBench checkout; None for another file."""
    level, number = _LEVEL.fullmatch(problem.parent.name), _NUMBER.match(problem.name)
    return (int(level[1]), int(number[1])) if level and number else None


def _check_one(found: set[str], what: str, option: str) -> None:
    if len(found) > 1:
        names = ", ".join(sorted(found))
        raise UserError(f"the file holds one run of one level, and there are several {what}: {names}; choose: {option}")


def _samples(verdicts: Sequence[Verdict]) -> list[Result]:
    """The newest verdict on each sample, by its number."""
    newest = {(verdict.sample, verdict.sample is None and verdict.label): verdict for verdict in verdicts}
    numbered = {verdict.sample: verdict for verdict in newest.values() if verdict.sample is not None}
    for verdict in newest.values():
        if verdict.sample is None:
            free = next(number for number in range(len(newest)) if number not in numbered)
            numbered[free] = verdict
    return [_result(number, numbered[number]) for number in sorted(numbered)]


def _result(sample: int, verdict: Verdict) -> Result:
    forward = verdict.forward
    correct = forward is not None and forward.status is StageStatus.PASSED
    timing = verdict.timing.forward if verdict.timing else None
    return {
        "sample_id": sample,
        "compiled": _compiled(verdict),
        "correctness": correct and verdict.status is not Status.INTEGRITY_VIOLATION,
        "metadata": _metadata(verdict),
        **_times("", timing.candidate_samples_ms if timing else ()),
        **_times("ref_", timing.reference_samples_ms if timing else ()),
    }


def _compiled(verdict: Verdict) -> bool:
    built = verdict.build is not None and verdict.build.status is StageStatus.PASSED
    return built and all(diagnosis.code != "import_raised" for diagnosis in verdict.diagnoses)


def _metadata(verdict: Verdict) -> Result:
    forward, backward = verdict.forward, verdict.backward
    metadata: Result = {
        "hardware": verdict.environment.device_name,
        "device": str(verdict.device),
        "grader": f"kernel-grader {verdict.environment.grader_version}",
        "verdict_id": verdict.verdict_id,
        "status": str(verdict.status),
        "backward": str(backward.status) if backward else None,
        "diagnosis": verdict.diagnoses[0].message if verdict.diagnoses else None,
        "label": verdict.label,
        "passes_1e_4": forward.passes_1e_4 if forward else None,
        "passes_1e_2": forward.passes_1e_2 if forward else None,
    }
    return {key: value for key, value in metadata.items() if value is not None}


def _times(prefix: str, samples: Sequence[float]) -> Result:
    """`runtime` and `runtime_stats`, over the rounds of timing."""
    if not samples:
        return {f"{prefix}runtime": NOT_MEASURED, f"{prefix}runtime_stats": {}}
    mean = statistics.fmean(samples)
    stats = {
        "mean": mean,
        "std": statistics.pstdev(samples),
        "min": min(samples),
        "max": max(samples),
        "num_trials": len(samples),
    }
    return {f"{prefix}runtime": mean, f"{prefix}runtime_stats": stats}
