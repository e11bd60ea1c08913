"""Grading from Python, with real workers in the real sandbox, on the CPU."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import Grader, Problem, Status, Submission, UserError, grade, reward
from grader.executor.launcher import Role
from grader.grading import plan
from grader.grading.timing.stopping import RoundLimits
from grader.verdict.models import Device, Diagnosis, Settings
from grader.verdict.stages import FigureTiming
from tests import samples

ROOT = Path(__file__).resolve().parents[1]
PROBLEMS = ROOT / "tests" / "cases" / "problems"
PROBLEM = PROBLEMS / "scale_bias_relu.py"
RIGHT = ROOT / "tests" / "cases" / "honest_plain" / "scale_bias_relu.py"
WRONG = RIGHT.read_text().replace("x * self.scale", "x * self.scale.abs()")
NO_BACKWARD = RIGHT.read_text().replace("self.bias)", "self.bias).detach()")


@pytest.fixture(scope="module")
def grader():
    """Warm workers; one round of timing, as nobody looks at it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "QUICK", RoundLimits(min_rounds=1, max_rounds=1, seconds=0.0))
        with Grader(device="cpu", quick=True, problems=[PROBLEMS]) as started:
            yield started


# ---------------------------------------------------------------------------------------------- one submission


@pytest.mark.slow
def test_a_file_is_graded_for_the_problem_named(tmp_path):
    path = tmp_path / "my_kernel.py"
    path.write_text(RIGHT.read_text())
    verdict = grade(str(path), problem=str(PROBLEM), device="cpu", quick=True)
    assert verdict.status is Status.CORRECT
    assert verdict.timing.total.rounds >= 1
    assert (verdict.problem, verdict.label) == ("scale_bias_relu", "my_kernel")


@pytest.mark.slow
def test_a_text_is_graded():
    verdict = grade(source=NO_BACKWARD, problem="scale_bias_relu", problems=[PROBLEMS], device="cpu", quick=True)
    assert verdict.status is Status.MISSING_BACKWARD
    assert verdict.diagnoses[0].code == "output_detached"
    assert verdict.author == "unknown"


GRADED = """
import sys
from grader import grade
verdict = grade(sys.argv[1], problem=sys.argv[2], device="cpu", quick=True)
print(verdict.status, [name for name in ("sympy", "torch._dynamo", "triton") if name in sys.modules])
"""


@pytest.mark.slow
def test_grading_imports_nothing_that_takes_seconds():
    """Into the referee, beside torch: some of its functions import its compiler, or sympy."""
    arguments = [sys.executable, "-c", GRADED, str(RIGHT), str(PROBLEM)]
    done = subprocess.run(arguments, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "correct []"


def test_a_file_name_tells_its_problem(grader):
    verdict = grader.grade(RIGHT)
    assert (verdict.status, verdict.author, verdict.label) == (Status.CORRECT, "honest_plain", None)


def test_a_loop_of_calls_finds_the_next_worker_started():
    """From the second call on; the first may be the only one."""
    with Grader(device="cpu", quick=True, problems=[PROBLEMS]) as own:
        spares = own._pipeline.resources.launcher._spares[Role.RUN, Device.CPU]
        for started in (0, 1):
            own.grade(source="class ModelNew: pass", problem="scale_bias_relu")
            assert len(spares) == started


def test_settings_and_environment_are_known_before_the_verdict(grader):
    submission = Submission(author="ann", problem_id="scale_bias_relu", path="x.py", source=WRONG)
    (verdict,) = grader.grade_many([submission])
    assert verdict.settings == grader.settings_for(submission)
    assert (verdict.environment,) == grader.environments_for(submission)


def test_an_empty_text_is_the_submissions_fault(grader):
    verdict = grader.grade(source=" \n", problem="scale_bias_relu")
    assert verdict.status is Status.INVALID_SUBMISSION


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "give either the submission's path or its source"),
        ({"path": RIGHT, "source": WRONG}, "give either the submission's path or its source"),
        ({"path": "import torch\n\n" + 300 * "x"}, "the path has several lines; give a source as source=..."),
        ({"source": WRONG}, "a source has no file name that names its problem; add problem=..."),
        ({"path": "nowhere.py", "problem": PROBLEM}, "nowhere.py: no such file or folder"),
        ({"path": RIGHT.parent, "problem": PROBLEM}, "a folder; `grade` takes one file"),
        ({"source": WRONG, "problem": "scale_bias"}, "unknown problem 'scale_bias'; did you mean scale_bias_relu"),
        ({"source": WRONG, "problem": Path("nowhere.py")}, "nowhere.py: no such file or folder"),
    ],
)
def test_a_mistake_is_one_line_before_anything_starts(arguments, message):
    with pytest.raises(UserError) as raised:
        grade(**arguments, problems=[PROBLEMS])
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


# --------------------------------------------------------------------------------------------- many submissions


@pytest.mark.slow
def test_every_form_of_work_is_graded_in_its_order(grader):
    problem = Problem(id="scale_bias_relu", path=PROBLEM, source=PROBLEM.read_text())
    submission = Submission(author="ann", problem_id="scale_bias_relu", path="x.py", source=NO_BACKWARD)
    work = [
        ("scale_bias_relu", WRONG),
        (PROBLEM, RIGHT),
        submission,
        (problem, submission),
        {"problem": "scale_bias_relu", "source": WRONG, "author": "bob", "label": "v2", "sample": 3},
    ]
    verdicts = list(grader.grade_many(work))
    assert [verdict.status for verdict in verdicts] == [
        Status.WRONG_OUTPUT,
        Status.CORRECT,
        Status.MISSING_BACKWARD,
        Status.MISSING_BACKWARD,
        Status.WRONG_OUTPUT,
    ]
    last = verdicts[-1]
    assert (last.author, last.label, last.sample) == ("bob", "v2", 3)


@pytest.mark.slow
def test_verdicts_come_as_they_are_reached_from_work_without_end(grader):
    def work():
        while True:
            yield "scale_bias_relu", WRONG

    verdicts = grader.grade_many(work())
    assert [next(verdicts).status for _ in range(2)] == [Status.WRONG_OUTPUT] * 2
    verdicts.close()
    assert grader.grade(RIGHT).status is Status.CORRECT


def test_work_that_arrives_after_an_end_is_graded_in_the_same_batch(grader):
    """A pool's process counts on it: it prepares the next submission while it grades one."""

    class Arriving(Iterator):
        def __init__(self):
            self.arrived = [("scale_bias_relu", WRONG)]

        def __next__(self):
            if not self.arrived:
                raise StopIteration
            return self.arrived.pop()

    work = Arriving()
    verdicts = grader.grade_many(work)
    assert next(verdicts).status is Status.WRONG_OUTPUT
    work.arrived.append(("scale_bias_relu", NO_BACKWARD))
    assert [verdict.status for verdict in verdicts] == [Status.MISSING_BACKWARD]


@pytest.mark.parametrize(
    ("work", "message"),
    [
        ({"problem": "scale_bias_relu"}, "missing field 'source'"),
        ({"problem": "scale_bias_relu", "source": WRONG, "lable": "v2"}, "unknown field 'lable'"),
        ({"problem": "scale_bias_relu", "source": WRONG, "sample": "one"}, "field 'sample': "),
        (("scale_bias", WRONG), "unknown problem 'scale_bias'"),
    ],
)
def test_work_that_cannot_be_graded_is_named(grader, work, message):
    with pytest.raises(UserError, match=message):
        next(grader.grade_many([work]))


def test_threads_take_turns(grader):
    statuses = []
    threads = [
        threading.Thread(target=lambda text=text: statuses.append(grader.grade(source=text, problem=PROBLEM).status))
        for text in (WRONG, NO_BACKWARD)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [Status.MISSING_BACKWARD, Status.WRONG_OUTPUT]


# ------------------------------------------------------------------------------------------------ an event loop


def test_an_event_loop_goes_on_meanwhile(grader):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    async def main():
        ticking = asyncio.create_task(tick())
        found = [verdict.status async for verdict in grader.agrade_many([(PROBLEM, WRONG), (PROBLEM, RIGHT)])]
        ticking.cancel()
        return found

    assert asyncio.run(main()) == [Status.WRONG_OUTPUT, Status.CORRECT]
    assert ticks > 10


def test_cancelled_it_waits_for_what_is_in_hand_and_blocks_no_loop(grader):
    read, got, ticks = [], [], 0
    in_hand, go_on = threading.Event(), threading.Event()

    def work():
        for number in range(1000):
            read.append(number)
            if got:
                in_hand.set()
                if not go_on.wait(20):  # a loop that is blocked would be blocked for ever
                    go_on.set()
            yield PROBLEM, WRONG

    async def consume():
        async for verdict in grader.agrade_many(work()):
            got.append(verdict)

    async def main():
        nonlocal ticks
        task = asyncio.create_task(consume())
        while not in_hand.is_set():
            await asyncio.sleep(0.01)
        for _ in range(2):  # an impatient caller changes nothing
            task.cancel()
            await asyncio.sleep(0.05)
            ticks += not go_on.is_set()
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert ticks == 2
    assert len(got) == 1
    known = len(read)
    assert grader.grade(RIGHT).status is Status.CORRECT
    assert len(read) == known < 100
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("grader")]


def test_a_time_limit_is_kept_to_within_one_submission(grader):
    async def main():
        async with asyncio.timeout(0.01):
            async for _ in grader.agrade_many([(PROBLEM, WRONG)] * 1000):
                pass

    with pytest.raises(TimeoutError):
        asyncio.run(main())


def test_an_error_in_the_work_reaches_the_loop(grader):
    async def main():
        return [verdict async for verdict in grader.agrade_many([("scale_bias", WRONG)])]

    with pytest.raises(UserError, match="did you mean scale_bias_relu"):
        asyncio.run(main())


# ------------------------------------------------------------------------------------------------------- import


def test_importing_grade_does_not_import_torch():
    code = "import sys\nfrom grader import grade, reward\nassert not {'torch', 'sqlmodel'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_an_unknown_name_is_an_attribute_error():
    import grader

    with pytest.raises(AttributeError, match="'grader' has no attribute 'grades'"):
        _ = grader.grades
    assert all(getattr(grader, name) for name in grader.__all__)


# ------------------------------------------------------------------------------------------------------- reward


def timed(speedup, bound_ms=None, **fields):
    """A correct verdict whose total speedup has `speedup` as its interval's lower end."""
    phase = FigureTiming(
        candidate_ms=1.0,
        reference_ms=10.0,
        speedup=speedup * 1.5,
        ci_low=speedup,
        ci_high=speedup * 2,
        bound_ms=bound_ms,
        rounds=8,
    )
    correct = samples.verdict(**fields)
    return correct.model_copy(update={"timing": correct.timing.model_copy(update={"total": phase})})


def test_a_correct_submission_earns_its_interval_s_lower_end():
    assert reward(timed(2.0)) == pytest.approx(0.3 + 2.0)
    assert reward(timed(2.0), correct=1.0, per_speedup=0.5) == pytest.approx(2.0)


def test_what_is_faster_than_the_roofline_bound_earns_no_more_than_the_bound():
    assert reward(timed(50.0, bound_ms=2.0)) == pytest.approx(0.3 + 10.0 / 2.0)
    assert reward(timed(3.0, bound_ms=2.0)) == pytest.approx(3.3)
    assert reward(timed(50.0), max_speedup=4.0) == pytest.approx(4.3)


@pytest.mark.parametrize("label", ["wraps_reference", "torch_fallback", "no_custom_kernel"])
def test_what_is_no_kernel_earns_nothing(label):
    assert reward(timed(2.0, labels=(label,))) == 0.0
    assert reward(timed(2.0, labels=(label,)), worthless=()) == pytest.approx(2.3)


@pytest.mark.parametrize(
    ("status", "step"),
    [
        (Status.INVALID_SUBMISSION, 0.0),
        (Status.BUILD_ERROR, 0.0),
        (Status.INTEGRITY_VIOLATION, 0.0),
        (Status.WRONG_OUTPUT, 0.05),
        (Status.CRASHED, 0.05),
        (Status.MISSING_BACKWARD, 0.1),
        (Status.WRONG_BACKWARD, 0.1),
    ],
)
def test_steps_are_paid_only_when_asked_for(status, step):
    stage = "load" if status is Status.INVALID_SUBMISSION else "build" if status is Status.BUILD_ERROR else "forward"
    diagnosis = Diagnosis(code="raised", stage=stage, message="It raised.")
    verdict = samples.verdict(status=status, diagnoses=(diagnosis,))
    assert reward(verdict) == 0.0
    assert reward(verdict, built=0.05, forward=0.1) == step


@pytest.mark.parametrize("status", [Status.NOT_RUN, Status.GRADER_ERROR])
def test_what_says_nothing_about_the_submission_is_not_trained_on(status):
    assert reward(samples.verdict(status=status), built=0.05, forward=0.1) is None


def test_what_is_not_ranked_or_not_timed_is_not_trained_on():
    one_variant = Settings(device="cpu", variant="small")
    assert reward(timed(2.0, settings=one_variant)) is None
    assert reward(samples.verdict(status=Status.WRONG_OUTPUT, settings=one_variant)) is None
    assert reward(samples.verdict().model_copy(update={"timing": None})) is None


def test_a_problem_without_gradients_is_paid_by_its_forward():
    assert reward(samples.verdict(total=None, forward_speedup=3.0)) == pytest.approx(0.3 + 2.7)


def test_a_later_stage_never_earns_less():
    with pytest.raises(ValueError, match="0 <= built <= forward <= correct"):
        reward(samples.verdict(), forward=0.5)
