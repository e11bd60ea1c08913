"""Submissions of tests/cases with the verdict that each must get: finds them, grades them, compares.

tests/cases/README.md says what an expected.json holds.
"""

import contextlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from _pytest.mark import ParameterSet

from grader.grading import plan
from grader.grading.pipeline import Pipeline
from grader.grading.timing.stopping import RoundLimits
from grader.options import GraderOptions
from grader.verdict.feedback import feedback
from grader.verdict.models import Problem, Status, Submission, Verdict
from grader.verdict.precision import Precision

CASES = Path(__file__).parent / "cases"
Expected = dict[str, Any]
"""What an expected.json holds for one file."""
Graders = Callable[[str], Pipeline]
"""The grader for a device."""
SHIPPED = CASES.parents[1] / "problems"


BOUNDS = ("max_speedup", "max_forward", "max_backward", "max_total")
"""Keys that bound a measured speedup."""


def listed(*folders: str) -> list[ParameterSet]:
    """One parameter set (path, expected) for each submission that an expected.json of these folders names."""
    found: list[ParameterSet] = []
    for table in sorted(table for folder in folders for table in CASES.glob(f"{folder}/expected.json")):
        for name, expected in json.loads(table.read_text()).items():
            path = table.parent / name
            marks: list[pytest.MarkDecorator] = [pytest.mark.gpu] if expected["device"] == "cuda" else []
            package = expected.get("needs")
            if package and importlib.util.find_spec(package) is None:
                marks.append(pytest.mark.skip(reason=f"needs the package {package}"))
            compiles = any(what in path.read_text() for what in ("load_inline", "import load\n", "torch.compile"))
            marks += [pytest.mark.slow] if compiles else []
            marks += [pytest.mark.deep] if expected.get("deep") else []
            marks += [pytest.mark.alone] if any(key in expected for key in BOUNDS) else []
            found.append(pytest.param(path, expected, id=f"{path.parent.name}/{path.stem}", marks=marks))
    return sorted(found, key=_problem_of)  # a problem's reference is started once


def _problem_of(entry: ParameterSet) -> str:
    expected: Any = entry.values[1]
    return str(expected["problem"])


def there(*folders: str) -> set[Path]:
    """The submissions that lie in these folders."""
    return {path for folder in folders for path in CASES.glob(f"{folder}/*.py")}


AMPLE_SECONDS = 60.0
"""Time for all checks, however busy the machine: cases expect what a single one of them finds."""


@contextlib.contextmanager
def graders(*, rounds: int, **options: Any) -> Iterator[Graders]:
    """A pipeline for each device, started when it is first needed; so many rounds of timing."""
    started: dict[str, Pipeline] = {}

    def get(device: Any) -> Pipeline:
        if device not in started:
            started[device] = Pipeline(GraderOptions(device=device, quick=True, seconds=AMPLE_SECONDS, **options))
        return started[device]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", RoundLimits(min_rounds=rounds, max_rounds=rounds, seconds=0.0))
        yield get
        for pipeline in started.values():
            pipeline.close()


def grade(graders: Graders, path: Path, expected: Expected) -> Verdict:
    pipeline = graders(expected["device"])
    precision = Precision(expected.get("precision", "fp32"))
    given = submission(path, expected["problem"]).model_copy(update={"precision": precision})
    return pipeline.grade(pipeline.request(problem(expected["problem"]), given))


def compare(verdict: Verdict, expected: Expected) -> None:
    """Fails with what the verdict says."""
    shown = "\n".join(
        [f"{verdict.submission} is {verdict.status}, labelled {', '.join(verdict.labels) or 'nothing'}"]
        + [f"  {diagnosis.severity} {diagnosis.code}: {diagnosis.message}" for diagnosis in verdict.diagnoses]
    )
    told = [diagnosis for diagnosis in verdict.diagnoses if diagnosis.stage != "timing"]
    consequences = [text for one in told for text in cast(list[str], one.detail.get("consequences", []))]
    messages = " | ".join([*(one.message for one in told), *consequences])
    wanted = expected["status"] if isinstance(expected["status"], list) else [expected["status"]]
    assert verdict.status in wanted, shown
    if expected["codes"] is not None:
        assert [diagnosis.code for diagnosis in told if diagnosis.severity != "info"] == expected["codes"], shown
    folded = {text.partition(":")[0] for text in consequences}
    assert set(expected.get("folded", [])) <= folded, shown
    assert set(expected.get("info", [])) <= {diagnosis.code for diagnosis in told}, shown
    assert [text for text in expected.get("message_contains", []) if text not in messages] == [], shown
    first_line = feedback(verdict).partition("\n")[0]
    named = verdict.diagnoses[0].code if verdict.diagnoses and verdict.status is not Status.CORRECT else ""
    assert first_line.startswith(f"{verdict.status}: {named}"), first_line
    assert set(expected.get("labels", [])) <= set(verdict.labels), shown
    assert not set(expected.get("not_labels", [])) & set(verdict.labels), shown
    for name in ("forward", "backward", "total"):
        timed = None if verdict.timing is None else getattr(verdict.timing, name)
        bound = expected.get(f"max_{name}", expected.get("max_speedup"))
        if timed is not None and bound is not None:
            assert timed.ci_low <= bound, f"{name}: {timed.speedup:.3g}x by the {timed.clock}'s clock"
        assert not (timed and expected.get("untimed")), name


def problem(problem_id: str) -> Problem:
    folder = CASES / "problems" if (CASES / "problems" / f"{problem_id}.py").exists() else SHIPPED
    path = folder / f"{problem_id}.py"
    return Problem(id=problem_id, path=path, source=path.read_text())


def submission(path: Path, problem_id: str) -> Submission:
    return Submission(author=path.parent.name, problem_id=problem_id, path=str(path), source=path.read_text())
