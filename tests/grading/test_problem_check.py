"""Problems that cannot tell right from wrong are reported, after running them in the real sandbox."""

import os
from pathlib import Path

import pytest

from grader.grading.problem_check import Checker
from tests import samples

SCALE = "return x * self.weight"
ORDINARY = samples.PROBLEM_SOURCE


def forward(body):
    return ORDINARY.replace(SCALE, body)


@pytest.fixture(scope="module")
def checker():
    with Checker() as started:
        yield started


def check(checker, source, problem_id="scale"):
    return checker.check(samples.problem(problem_id, source=source, path=Path(f"/problems/{problem_id}.py")))


@pytest.mark.slow
@pytest.mark.parametrize(
    "source",
    [
        ORDINARY,
        forward("return ((x * self.weight) ** 2).mean()"),
        forward("return x.argmax(1)"),
        forward("return 1e-6 * x * self.weight"),
        forward("return torch.softmax(x * 1e-3, 1) + self.weight"),
    ],
    ids=["ordinary", "one number", "indices", "tiny", "nearly flat"],
)
def test_an_honest_problem_is_gradable(checker, source):
    found = check(checker, source)
    assert (found.gradable, found.fault) == (True, None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "remark"),
    [
        # Like KernelBench's Gemm_Max_Subtract_GELU: one number a row, less its own mean.
        ("m = x.amax(1, keepdim=True); return (m - m.mean(1, keepdim=True)).relu()", "constant pass the tolerance: 0"),
        ("return 1 + 1e-9 * x * self.weight", "outputs filled with a constant pass the tolerance: 1"),
        ("return self.weight + 1e-9 * x", "stored outputs pass"),
        ("return x.clamp(5, 5.00000001) + 0 * self.weight", "constant pass the tolerance: 5"),
        ("return x * float('nan')", "constant pass the tolerance: nan"),
        ("return self.weight * torch.arange(8.0) + 0 * x", "stored outputs pass"),
    ],
)
def test_a_problem_that_a_constant_passes_is_gradable_with_a_remark(checker, body, remark):
    found = check(checker, forward(body))
    assert (found.gradable, found.fault) == (True, None)
    assert remark in found.remark


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "code", "reason"),
    [
        (forward("return torch.rand_like(x)"), "stochastic", "in train() and in eval()"),
        (forward("return 3"), "no_output", "it returns no tensor"),
        (forward("return x.reshape(3, 7)"), "does_not_run", "in train(), the reference raised RuntimeError"),
        (forward("return x").replace("randn(4, 8)", "randn(4, 8) + missing"), "does_not_run", "name 'missing'"),
        ("import nowhere\n" + ORDINARY, "does_not_load", "needs the package `nowhere`, which is not installed here"),
    ],
)
def test_a_problem_that_cannot_be_graded_has_a_reason(checker, source, code, reason):
    found = check(checker, source)
    assert found.gradable is False
    assert found.fault.code == code
    assert reason in found.fault.reason
    assert "\n" not in found.fault.reason
    assert "/problems/scale.py" not in found.fault.reason


@pytest.mark.slow
def test_integers_alone_cannot_be_graded(checker):
    source = forward("return x + 1").replace("torch.randn(4, 8)", "torch.randint(9, (4, 8))")
    source = source.replace("nn.Parameter(torch.ones(size))", "None")
    assert check(checker, source).fault.code == "no_float"


@pytest.mark.slow
def test_dropout_is_graded_in_eval_only_and_says_so(checker):
    found = check(checker, forward("return torch.dropout(x * self.weight, 0.5, self.training)"))
    assert found.gradable
    assert found.remark == "random in train(): values are compared in eval() only"


def test_a_problem_too_large_for_a_cpu_is_not_tried(checker, monkeypatch):
    found = check(checker, ORDINARY.replace("torch.randn(4, 8)", "torch.randn(1 << 40, 8)"))
    assert found.gradable is None
    assert found.remark.startswith("not tried: its inputs have 32768.0 GiB")


@pytest.mark.slow
def test_the_model_runs_in_a_worker_only(checker):
    """The message of the exception holds the id of the process that ran the forward."""
    found = check(checker, forward("import os; raise RuntimeError(f'process {os.getppid()} {os.getpid()}')"))
    assert found.fault.code == "does_not_run"
    assert f" {os.getpid()}" not in found.fault.reason
