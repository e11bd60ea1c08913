"""Ways to fool a grader, and honest work that graders wrongly reject: each is graded, and its verdict compared.

An expected.json gives each file's status, or several that will do. Where an attack is merely pointless the status is
`correct`, and `max_speedup`, or `max_forward`, `max_backward` and `max_total`, bound what its time may look like: the
lower end of the interval, which ranks. `untimed` wants no figure at all.
"""

import json
from pathlib import Path

import pytest

from grader.models import Problem, Submission, TimeLimits
from grader.pipeline import Grader
from grader.stages import plan
from grader.stages.timing.judge import Plan

CASES = Path(__file__).parents[1] / "cases"
LIMITS = TimeLimits(build=120, construction=30, call=20)


def files():
    for table in sorted([*CASES.glob("cheat_*/expected.json"), *CASES.glob("honest_*/expected.json")]):
        for name, expected in json.loads(table.read_text()).items():
            path = table.parent / name
            marks = [pytest.mark.gpu] if expected["device"] == "cuda" else []
            marks += [pytest.mark.slow] if "load_inline" in path.read_text() else []
            yield pytest.param(path, expected, id=f"{path.parent.name}/{path.stem}", marks=marks)


@pytest.fixture(scope="module")
def graders():
    """A grader for each device, started when it is first needed."""
    started = {}

    def get(device):
        if device not in started:
            started[device] = Grader(device=device, quick=True, limits=LIMITS)
        return started[device]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", Plan(min_rounds=2, max_rounds=2, seconds=0.0))
        yield get
        for grader in started.values():
            grader.close()


@pytest.mark.parametrize(("path", "expected"), sorted(files(), key=lambda entry: entry.values[1]["problem"]))
def test_case(graders, path, expected):
    problem = CASES / "problems" / f"{expected['problem']}.py"
    verdict = graders(expected["device"]).grade(
        Problem(id=problem.stem, path=problem, source=problem.read_text()),
        Submission(author=path.parent.name, problem_id=problem.stem, path=str(path), source=path.read_text()),
    )
    told = [diagnosis for diagnosis in verdict.diagnoses if diagnosis.severity != "info"]
    shown = "\n".join(f"  {diagnosis.severity} {diagnosis.code}: {diagnosis.message}" for diagnosis in told)
    wanted = expected["status"] if isinstance(expected["status"], list) else [expected["status"]]
    assert verdict.status in wanted, f"{verdict.status}\n{shown}"
    if expected["codes"] is not None:
        assert [diagnosis.code for diagnosis in told if diagnosis.stage != "timing"] == expected["codes"], shown
    assert set(expected.get("labels", [])) <= set(verdict.labels)
    for name in ("forward", "backward", "total"):
        timed = None if verdict.timing is None else getattr(verdict.timing, name)
        bound = expected.get(f"max_{name}", expected.get("max_speedup"))
        if timed is not None and bound is not None:
            assert timed.ci_low <= bound, f"{name}: {timed.speedup:.3g}x by the {timed.clock}'s clock"
        assert not (timed and expected.get("untimed")), name


def test_every_file_has_an_expected_verdict():
    listed = {entry.values[0] for entry in files()}
    assert listed == {*CASES.glob("cheat_*/*.py"), *CASES.glob("honest_*/*.py")}


def test_every_attack_says_what_it_is():
    for path in CASES.glob("cheat_*/*.py"):
        head = path.read_text().split('"""')[1]
        assert "Attack surface: " in head, path
        assert "Why it fails: " in head, path
