"""Seeded faults and their honest twins: each is graded, and its verdict compared with the one that it must get."""

import itertools
import json
import os
from pathlib import Path

import pytest

from grader.models import Device, Problem, Submission
from grader.pipeline import Grader
from grader.remote.launch import Role
from grader.stages import build, plan
from grader.stages.backward.judge import judge_products
from grader.stages.candidate import Candidate
from grader.stages.timing.judge import Plan

CASES = Path(__file__).parent / "cases"
PROBLEMS = CASES / "problems"
SHIPPED = CASES.parents[1] / "problems"
SEEDS = int(os.environ.get("GRADER_TEST_SEEDS", "10"))
"""Draws of each variant in the search for false rejects."""


def files():
    """One entry a submission that an expected.json of these folders names."""
    for table in sorted([*CASES.glob("backward_*/expected.json"), *CASES.glob("forward_*/expected.json")]):
        for name, expected in json.loads(table.read_text()).items():
            path = table.parent / name
            marks = [pytest.mark.gpu] if expected["device"] == "cuda" else []
            marks += [pytest.mark.slow] if "load_inline" in path.read_text() else []
            yield pytest.param(path, expected, id=f"{path.parent.name}/{path.stem}", marks=marks)


def honest():
    """Honest twins that need no compiler, and every shipped problem's own Model."""
    twins = [entry.values[0] for entry in files() if not entry.values[1]["codes"]]
    twins = [path for path in twins if "load_inline" not in path.read_text()]
    return [*twins, *sorted(SHIPPED.glob("*.py"))]


@pytest.fixture(scope="session")
def graders():
    """A grader for each device, started when it is first needed; one round of timing, as nobody looks at it."""
    started = {}

    def get(device):
        if device not in started:
            started[device] = Grader(device=device, quick=True)
        return started[device]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", Plan(min_rounds=1, max_rounds=1, seconds=0.0))
        yield get
        for grader in started.values():
            grader.close()


@pytest.mark.parametrize(("path", "expected"), sorted(files(), key=lambda entry: entry.values[1]["problem"]))
def test_case(graders, path, expected):
    verdict = graders(expected["device"]).grade(problem(expected["problem"]), submission(path, expected["problem"]))
    told = [diagnosis for diagnosis in verdict.diagnoses if diagnosis.stage != "timing"]
    messages = " | ".join(diagnosis.message for diagnosis in told)
    shown = "\n".join(
        [f"{path.parent.name}/{path.name} is {verdict.status}"]
        + [f"  {diagnosis.severity} {diagnosis.code}: {diagnosis.message}" for diagnosis in told]
    )
    assert verdict.status == expected["status"], shown
    assert [diagnosis.code for diagnosis in told if diagnosis.severity != "info"] == expected["codes"], shown
    assert [code for code in expected.get("info", []) if code not in {diagnosis.code for diagnosis in told}] == [], (
        shown
    )
    assert [text for text in expected.get("message_contains", []) if text not in messages] == [], shown


def test_every_file_has_an_expected_verdict():
    listed = {entry.values[0] for entry in files()}
    there = {*CASES.glob("backward_*/*.py"), *CASES.glob("forward_*/*.py")}
    assert there == listed


@pytest.mark.slow
@pytest.mark.parametrize("path", honest(), ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_no_false_reject(graders, path):
    """Gradients of honest submissions, over many draws of inputs, parameters and grad_outputs."""
    if path.parent == SHIPPED:
        problem_id, source, variants = path.stem, as_submission(path), ("small", "odd", "batch1")
    else:
        problem_id = json.loads((path.parent / "expected.json").read_text())[path.name]["problem"]
        source, variants = path.read_text(), ("full",)
    candidate = submission(path, problem_id).model_copy(update={"source": source})
    assert rejected(graders("cpu"), problem(problem_id), candidate, variants) == []


def as_submission(path):
    return path.read_text().replace("class Model(", "class ModelNew(")


def rejected(grader, problem, candidate, variants):
    """One line for each draw whose gradients are found to be wrong."""
    found = []
    desk = grader._desk(problem, Device.CPU)
    with grader._launcher.take(Role.RUN, Device.CPU) as worker:
        build.import_submission(worker, candidate, grader._cache, keep=False, timeout_seconds=grader._limits.build)
        examined = Candidate(worker, Device.CPU, grader._limits)
        for variant in variants:
            modes = (True, False) if desk.modes_differ(variant) else (True,)
            for training, draw in itertools.product(modes, range(SEEDS)):
                case = desk.case(variant, training=training, draw=draw)
                found += [f"{case.name}, {case.seed}: {d.message}" for d in judge_products(examined, case).diagnoses]
            desk.forget(variant)
    return found


def problem(problem_id):
    folder = PROBLEMS if (PROBLEMS / f"{problem_id}.py").exists() else SHIPPED
    path = folder / f"{problem_id}.py"
    return Problem(id=problem_id, path=path, source=path.read_text())


def submission(path, problem_id):
    return Submission(author=path.parent.name, problem_id=problem_id, path=str(path), source=path.read_text())
