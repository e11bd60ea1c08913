"""Another attempt asks less where the grader lacks memory, and never so that a submission's own fault passes."""

import contextlib
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from grader.errors import ReferenceLost, ReferenceOutOfMemory
from grader.grading import plan, shortage
from grader.grading.attempts import Attempt, next_attempt
from grader.grading.compare import blocks
from grader.grading.messages import diagnose
from grader.grading.oracle import fewer_rows
from grader.grading.patterns import arrangement, evaluated, large_tensors, pattern
from grader.grading.pipeline import Pipeline
from grader.grading.plan import ESSENTIAL, EVERYTHING
from grader.grading.record import Record
from grader.grading.resources import Resources
from grader.grading.shortage import end_and_measure_shares, fills_memory
from grader.grading.stopped import Stopped
from grader.options import GraderOptions
from grader.verdict.models import Device, Problem, Submission
from tests import expected as cases

PROBLEM = "scale_bias_relu"
HONEST = cases.submission(cases.CASES / "honest_plain" / f"{PROBLEM}.py", PROBLEM)
FORWARD = "    def forward(self, x):\n"

BACKWARD_RUNS_OUT = """
import torch
from torch import nn


class Greedy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        raise torch.OutOfMemoryError("CUDA out of memory")


class Model(nn.Module):
    def forward(self, x):
        return Greedy.apply(x)


def get_inputs():
    return [torch.rand(8, 8)]
"""
FORWARD_ONLY = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        return (x * 2).detach()
"""


def own_shortage():
    return Stopped(diagnose("out_of_memory", "forward: CUDA out of memory", remedy="use less", stage="forward"))


def record(large=True):
    return Record(None, large=large)


@pytest.mark.parametrize(
    ("scope", "following"),
    [(EVERYTHING, ESSENTIAL), (ESSENTIAL, "half"), ("half", "quarter"), ("quarter", None)],
)
def test_a_shortage_in_the_reference_asks_less_step_by_step(scope, following):
    attempt = next_attempt(Attempt(scope), record(), ReferenceOutOfMemory("short"))
    assert (attempt and attempt.scope) == following


@pytest.mark.parametrize("fewer_rows", [True, False])
def test_a_submission_that_says_it_is_short_is_asked_no_less(fewer_rows):
    """But once more, with what the grader can spare; then the shortage is its own."""
    attempt = next_attempt(Attempt(fewer_rows=fewer_rows), record(), own_shortage())
    assert attempt == Attempt(fewer_rows=fewer_rows, sparing=True)
    assert next_attempt(attempt, record(), own_shortage()) is None


@pytest.mark.parametrize("scope", [ESSENTIAL, "half", "quarter"])
def test_a_shortage_in_the_submission_is_its_own_once_the_grader_holds_little(scope):
    assert next_attempt(Attempt(scope), record(), own_shortage()) is None


def test_a_submission_for_a_small_problem_that_says_it_is_short_is_asked_no_less():
    assert next_attempt(Attempt(), record(large=False), own_shortage()) is None


@pytest.mark.parametrize(
    ("scope", "following"),
    [(EVERYTHING, ESSENTIAL), (ESSENTIAL, "half"), ("half", "quarter"), ("quarter", None)],
)
def test_a_submission_that_had_less_memory_than_it_may_take_is_graded_on_fewer_rows(scope, following):
    short = record()
    short.memory_withheld = True
    attempt = next_attempt(Attempt(scope), short, own_shortage())
    assert (attempt and attempt.scope) == following


def test_one_that_fails_with_fewer_rows_is_asked_for_the_same_part_of_the_full_size():
    failed = record()
    failed.fewer_rows = True
    stopped = Stopped(diagnose("raised", "forward: ValueError", remedy="take it", stage="forward"))
    assert next_attempt(Attempt("half"), failed, stopped) == Attempt("half", fewer_rows=False)
    assert next_attempt(Attempt("half", fewer_rows=False), record(), stopped) is None


@pytest.fixture
def small_few(monkeypatch):
    """Inputs of half a MiB have fewer rows, and a tensor of so many bytes is not searched for a pattern."""
    monkeypatch.setattr(fewer_rows, "FEW_BYTES", 1 << 18)
    for module in (arrangement, evaluated, large_tensors, pattern):
        monkeypatch.setattr(module, "MAX_ELEMENTS", 1 << 16)


@pytest.mark.usefixtures("small_few")
def test_a_backward_that_is_wrong_with_fewer_rows_stands_where_the_full_size_has_none():
    """Else a submission that doubles its gradients would be correct at full size, where nothing compares them."""
    limited = "        assert len(grad_output) <= 32, 'CUDA error: invalid argument'\n        return grad_output"
    whole = WRONG.replace("(8, 8)", "(64, 1 << 12)")
    source = whole.format(forward=2, backward=2, name="Model").replace("        return grad_output", limited)
    problem = Problem(id="part", path=Path("part.py"), source=source)
    source = whole.format(forward=2, backward=4, name="ModelNew")
    submission = Submission(author="ann", problem_id="part", path="part.py", source=source)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert (verdict.status, verdict.diagnoses[0].code) == ("wrong_backward", "grad_scaled")
    assert "cannot be differentiated in train() at full size" in " ".join(one.message for one in verdict.diagnoses)


WRONG = """
import torch
from torch import nn


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * {forward}

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * {backward}


class {name}(nn.Module):
    def forward(self, x):
        return Double.apply(x)


def get_inputs():
    return [torch.rand(8, 8)]
"""


def of_many_rows(forward, backward):
    """The verdict on a submission with these factors, where 2 are right; checks run on 16 of 64 rows."""
    whole = WRONG.replace("(8, 8)", "(64, 1 << 12)")
    problem = Problem(id="rows", path=Path("rows.py"), source=whole.format(forward=2, backward=2, name="Model"))
    source = whole.format(forward=forward, backward=backward, name="ModelNew")
    submission = Submission(author="ann", problem_id="rows", path="rows.py", source=source)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        return pipeline.grade(pipeline.request(problem, submission))


@pytest.mark.usefixtures("small_few")
@pytest.mark.parametrize(("forward", "backward"), [("x.sigmoid()", 2), (2, "torch.arange(1 << 12)")])
def test_what_is_wrong_at_full_size_too_is_explained_where_a_search_is_cheap(forward, backward):
    verdict = of_many_rows(forward, backward)
    stage = verdict.backward or verdict.forward
    assert [(variant.variant, variant.status) for variant in stage.variants] == [("rows", "failed"), ("full", "failed")]
    messages = [diagnosis.message for diagnosis in verdict.diagnoses]
    assert "(variant rows)" in messages[0], messages
    assert "no pattern" not in messages[0], messages
    assert any("everything else on the first 16 rows" in message for message in messages), messages


@pytest.mark.usefixtures("small_few")
@pytest.mark.parametrize(
    ("forward", "backward"),
    [("(2 if len(x) < 64 else 2 + (x > 0.5))", 2), (2, "(2 if len(grad_output) < 64 else 2 + (grad_output > 0.5))")],
)
def test_what_is_wrong_at_full_size_alone_is_not_searched(forward, backward):
    verdict = of_many_rows(forward, backward)
    assert verdict.status in ("wrong_output", "wrong_backward")
    assert "it is too large to be searched for a pattern; compare" in verdict.diagnoses[0].message, verdict.diagnoses


@pytest.mark.usefixtures("small_few")
@pytest.mark.parametrize(
    ("forward", "backward"), [("(2 if len(x) == 64 else 3)", 2), (2, "(2 if len(grad_output) == 64 else 3)")]
)
def test_what_is_wrong_with_fewer_rows_alone_is_right(forward, backward):
    verdict = of_many_rows(forward, backward)
    messages = [diagnosis.message for diagnosis in verdict.diagnoses]
    assert verdict.status == "correct", messages
    assert any("failed with fewer rows, so the checks ran at full size" in message for message in messages), messages


@pytest.mark.parametrize(("factor", "status"), [("2", "correct"), ("(2.1 if len(x) == 64 else 2)", "wrong_output")])
def test_a_kernel_that_is_more_precise_than_the_reference_at_full_size_is_right(monkeypatch, factor, status):
    """The reference's own run stands in for one in float64, for which time is short, until it calls something wrong."""
    monkeypatch.setattr(blocks, "LARGE_BYTES", 8 << 20)  # no exact values for each timed call
    whole = """
import torch
from torch import nn


class {name}(nn.Module):
    def forward(self, x):
        return {value}


def get_inputs():
    return [torch.rand(64, 1 << 16)]
"""
    reference = whole.format(name="Model", value="2 * ((x + 3e4) - 3e4 if len(x) == 64 else x)")
    problem = Problem(id="rows", path=Path("rows.py"), source=reference)
    source = whole.format(name="ModelNew", value=f"{factor} * x")
    submission = Submission(author="ann", problem_id="rows", path="rows.py", source=source)
    with Pipeline(GraderOptions(device="cpu", quick=True, seconds=6.0)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert verdict.status == status, verdict.diagnoses


@pytest.mark.parametrize(
    ("forward", "backward", "module", "status"),
    [(3, 2, "forward", "wrong_output"), (2, 3, "backward", "wrong_backward")],
)
def test_what_is_wrong_stays_wrong_where_memory_is_too_short_to_say_why(monkeypatch, forward, backward, module, status):
    def explain(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(f"grader.grading.{module}.judge.explain", explain)
    problem = Problem(id="two", path=Path("two.py"), source=WRONG.format(forward=2, backward=2, name="Model"))
    source = WRONG.format(forward=forward, backward=backward, name="ModelNew")
    submission = Submission(author="ann", problem_id="two", path="two.py", source=source)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert verdict.status == status, verdict.diagnoses


def claims_a_shortage(monkeypatch, submission):
    """The verdict on a submission for a problem that counts as large."""
    monkeypatch.setattr(plan, "LARGE_CASE_BYTES", 1 << 10)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        return pipeline.grade(pipeline.request(cases.problem(PROBLEM), submission))


def test_a_large_problem_gets_every_check_from_a_submission_that_says_it_is_short(monkeypatch):
    short = "        if not self.training:\n            raise torch.OutOfMemoryError('CUDA out of memory')\n"
    assert HONEST.source.count(FORWARD) == 1
    claimed = HONEST.model_copy(update={"source": HONEST.source.replace(FORWARD, FORWARD + short)})
    verdict = claims_a_shortage(monkeypatch, claimed)
    assert (verdict.status, verdict.diagnoses[0].code) == ("out_of_memory", "out_of_memory")
    verdict = claims_a_shortage(monkeypatch, HONEST)
    assert verdict.status == "correct"
    (left_out,) = [diagnosis.message for diagnosis in verdict.diagnoses if diagnosis.code == "checks_left_out"]
    assert "without the probes of the forward" in left_out


GIB = 1 << 30


@pytest.fixture
def device(monkeypatch):
    """`device(unused, held)`: the worker of a device with memory of its own, of which it holds some until it ends.

    `results` of it are results that the grader has not read yet, and `shared` the regions.
    """

    def made(unused, held, results=0, shared=0):
        alive, unread, regions = [True], [results], [shared]

        def free():
            return unused + (0 if alive else held) + (0 if unread else results) + (0 if regions else shared)

        def release():
            if worker.read_results is None:
                unread.clear()
                regions.clear()

        def close():
            for kept in (alive, unread, regions):
                kept.clear()

        monkeypatch.setattr(shortage, "backend", lambda name: SimpleNamespace(own_memory=True, unused_bytes=free))
        worker = SimpleNamespace(
            read_results=free,
            region_bytes=shared,
            within=lambda seconds: contextlib.nullcontext(),
            forget_results=lambda: None,
            run=lambda steps, seconds: None,
            release_memory=release,
            close=close,
        )
        return worker

    return made


def reference(peak):
    worker = SimpleNamespace(peak_device_bytes=peak)
    return SimpleNamespace(device=None, process=SimpleNamespace(worker=worker))


def test_memory_that_the_submission_itself_holds_was_not_withheld(device):
    """Whatever its process says of its peak: it may hold all memory, and say that it never had any."""
    memory = end_and_measure_shares(device(unused=0, held=50 * GIB), reference(20 * GIB), 1.0)
    assert memory.had >= memory.needed
    memory = end_and_measure_shares(device(unused=1 * GIB, held=10 * GIB), reference(20 * GIB), 1.0)
    assert memory.had < memory.needed


def test_a_submission_may_take_twice_what_the_reference_takes(device):
    """As one that copies what it reads and writes: on a smaller device the memory is short on the grader's account."""
    memory = end_and_measure_shares(device(unused=5 * GIB, held=25 * GIB), reference(18 * GIB), 1.0)
    assert memory.had < memory.needed


def test_a_submission_that_fills_the_memory_is_blamed_for_the_references_shortage(device):
    stopped = fills_memory(end_and_measure_shares(device(unused=0, held=60 * GIB), reference(10 * GIB), 1.0))
    assert stopped.diagnosis.code == "out_of_memory"
    assert "it holds 60.0 GiB" in stopped.diagnosis.message
    assert fills_memory(end_and_measure_shares(device(unused=0, held=10 * GIB), reference(10 * GIB), 1.0)) is None


def test_results_that_the_grader_has_not_read_are_not_what_a_submission_holds(device):
    memory = end_and_measure_shares(
        device(unused=2 * GIB, held=1 * GIB, results=37 * GIB, shared=12 * GIB), reference(30 * GIB), 1.0
    )
    assert memory.held == 1 * GIB
    assert fills_memory(memory) is None


def test_memory_that_a_submission_shares_with_the_grader_is_none_that_it_could_use(device):
    """It had 27 GiB for its own tensors, where the reference takes 29."""
    memory = end_and_measure_shares(device(unused=2 * GIB, held=25 * GIB, shared=16 * GIB), reference(29 * GIB), 1.0)
    assert memory.had < memory.needed


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("CUDA error: out of memory", True),
        ("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", True),
        ("cuDNN error: CUDNN_STATUS_ALLOC_FAILED", True),
        ("cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY", True),
        ("CUDA error: invalid argument", False),
        ('kernel.cu(7): error: identifier "CUBLAS_STATUS_ALLOC_FAILED" is undefined', False),
    ],
)
def test_a_shortage_is_known_by_its_message(text, short):
    assert shortage.is_shortage(RuntimeError(text)) is short


def test_a_lost_reference_is_started_again_once():
    again = next_attempt(Attempt(), record(), ReferenceLost("was killed"))
    assert again == Attempt(EVERYTHING, lost_before="was killed")
    assert next_attempt(again, record(), ReferenceLost("was killed")) is None


@pytest.mark.parametrize(
    "error",
    [
        'OutOfMemoryError("CUDA out of memory")',
        'AcceleratorError("CUDA error: out of memory")',
        'AcceleratorError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`")',
    ],
)
def test_a_backward_for_which_memory_is_short_is_not_left_out(error):
    """Else a submission without a backward would be correct."""
    source = BACKWARD_RUNS_OUT.replace('OutOfMemoryError("CUDA out of memory")', error)
    problem = Problem(id="greedy", path=Path("greedy.py"), source=source)
    submission = Submission(author="ann", problem_id="greedy", path="greedy.py", source=FORWARD_ONLY)
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert verdict.status == "not_run", verdict.diagnoses
    assert "memory" in verdict.diagnoses[0].message


def test_float64_for_which_memory_is_short_does_not_widen_the_tolerance():
    """Else the fallback tolerance for references without float64 would hold."""
    source = BACKWARD_RUNS_OUT.replace("return x * 2", "return x * 2 if x.dtype == torch.float32 else _short()")
    source += "\n\ndef _short():\n    raise torch.OutOfMemoryError('CUDA out of memory')\n"
    source = source.replace('raise torch.OutOfMemoryError("CUDA out of memory")', "return grad_output * 2")
    problem = Problem(id="short64", path=Path("short64.py"), source=source)
    submission = Submission(
        author="ann", problem_id="short64", path="short64.py", source=source.replace("Model(", "ModelNew(")
    )
    with Pipeline(GraderOptions(device="cpu", quick=True)) as pipeline:
        verdict = pipeline.grade(pipeline.request(problem, submission))
    assert verdict.status == "not_run", verdict.diagnoses


def test_a_reference_that_ran_out_of_memory_is_started_again():
    """What it holds then is unknown, also where a verdict stands without the run that ran out."""
    problem = Problem(id="greedy", path=Path("greedy.py"), source=BACKWARD_RUNS_OUT)
    with Resources() as resources:
        oracle = resources.oracle(problem, Device.CPU)
        assert resources.oracle(problem, Device.CPU) is oracle
        with pytest.raises(ReferenceOutOfMemory):
            oracle.case("full")
        assert resources.oracle(problem, Device.CPU) is not oracle
