"""Baselines: the reference compiled on the CPU, and stored figures that are used while they hold."""

import stat

import pytest

from grader.grading.pipeline import Pipeline
from grader.grading.timing import baselines
from grader.grading.timing.baselines import Baselines, BaselineStore
from grader.machine.backends import backend
from grader.options import GraderOptions
from grader.verdict.models import Device, Problem, Submission, TimeLimits
from grader.verdict.stages import Baseline
from tests import samples

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size))

    def forward(self, x):
        if not torch.compiler.is_compiling():  # so that eager is far slower than compiled
            for _ in range(300):
                x.sin()
        return torch.relu(x * self.weight).tanh()

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return [256]
"""

EAGER = Baseline(name="eager", forward_ms=2.0, total_ms=6.0)
ALL = Baselines(
    (EAGER, Baseline(name="compile", forward_ms=1.0), Baseline(name="compile_max_autotune", forward_ms=0.5))
)
SOME = Baselines((EAGER,), ("torch.compile was not timed: no compiler",))


class Case:
    variant = "full"


def get(store, measured=ALL, *, problem=None, environment=None, tf32=True):
    """(the store's baselines, whether they were measured now)"""
    calls = []

    def measure():
        calls.append(1)
        return measured

    problem, environment = problem or samples.problem(), environment or samples.environment()
    return store.get(problem, Case, environment, tf32, measure), bool(calls)


def test_baselines_are_stored_in_a_read_only_file(tmp_path):
    assert get(BaselineStore(tmp_path)) == (ALL, True)
    assert get(BaselineStore(tmp_path), measured=SOME) == (ALL, False)
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o400


@pytest.mark.parametrize(
    "change",
    [
        {"problem": samples.problem(source=samples.PROBLEM_SOURCE + "\n")},
        {"environment": samples.environment(driver_version="1")},
        {"tf32": False},
    ],
    ids=["problem", "driver", "precision"],
)
def test_stale_baselines_are_measured_again(tmp_path, change):
    get(BaselineStore(tmp_path))
    assert get(BaselineStore(tmp_path), measured=SOME, **change) == (SOME, True)


def test_baselines_in_a_corrupt_file_are_measured_again(tmp_path):
    get(BaselineStore(tmp_path))
    (file,) = tmp_path.iterdir()
    file.chmod(0o600)
    file.write_text("{")
    assert get(BaselineStore(tmp_path)) == (ALL, True)


def test_baselines_that_cannot_be_stored_serve_the_same_grader(tmp_path):
    (tmp_path / "full").touch()
    store = BaselineStore(tmp_path / "full")
    assert get(store) == (ALL, True)
    assert get(store) == (ALL, False)


def test_a_missing_baseline_is_tried_again_by_the_next_grader(tmp_path):
    store = BaselineStore(tmp_path)
    assert get(store, measured=SOME) == (SOME, True)
    assert get(store) == (SOME, False)
    assert get(BaselineStore(tmp_path)) == (ALL, True)


@pytest.fixture
def plain_headers(monkeypatch):
    """TorchInductor precompiles a header in each new worker, which takes longer than the few kernels here."""
    plain = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    monkeypatch.setattr(type(backend(Device.CPU)), "worker_environment", lambda _: plain)


def open_grader(tmp_path, seconds=300.0):
    limits = TimeLimits(baselines=seconds)
    return Pipeline(
        GraderOptions(device="cpu", quick=True, baselines=True, build_cache=tmp_path / "cache", limits=limits)
    )


def grade(grader, tmp_path):
    """The verdict of the problem's reference on itself."""
    problem = Problem(id="chain", path=tmp_path / "chain.py", source=MODEL)
    problem.path.write_text(MODEL)
    itself = Submission(author="aa", problem_id="chain", path="x", source=MODEL.replace("Model(nn", "ModelNew(nn"))
    return grader.grade(grader.request(problem, itself))


@pytest.mark.slow
@pytest.mark.usefixtures("plain_headers")
@pytest.mark.parametrize("ways", [["eager", "compile"], pytest.param(list(baselines.MODES), marks=pytest.mark.deep)])
def test_the_reference_is_compiled_once_and_timed(monkeypatch, tmp_path, caplog, ways):
    monkeypatch.setattr(baselines, "MODES", {name: baselines.MODES[name] for name in ways})
    with open_grader(tmp_path) as grader:
        first = grade(grader, tmp_path)
        assert [one.name for one in first.timing.baselines] == ways
        eager, *compiled = first.timing.baselines
        # The eager reference takes three times as long, so that a busy machine changes nothing.
        assert all(0 < one.forward_ms < eager.forward_ms for one in compiled)
        assert all(0 < one.total_ms < eager.total_ms for one in compiled)
        assert grade(grader, tmp_path).timing.baselines == first.timing.baselines
        assert all(one.total_ms > one.backward_ms > 0 for one in first.timing.baselines)
    cache = tmp_path / "cache"
    (stored,) = cache.glob("*.baselines.json")
    assert len(list(cache.glob("*.tar"))) == 1  # of the reference; the submission compiled nothing
    stored.unlink()
    caplog.clear()  # another test of this process may have turned the log on
    with open_grader(tmp_path) as grader, caplog.at_level("INFO", "grader.grading.timing.baselines"):
        again = grade(grader, tmp_path)
    assert [one.name for one in again.timing.baselines] == ways
    assert caplog.text.count(" 0 new files,") == len(ways)


@pytest.mark.slow
@pytest.mark.usefixtures("plain_headers")
def test_a_search_that_takes_too_long_is_ended_and_the_rest_is_timed(monkeypatch, tmp_path):
    """The worker lives on: eager is timed after it. The verdict says so."""
    ways = {name: baselines.MODES[name] for name in ("compile_max_autotune", "eager")}
    monkeypatch.setattr(baselines, "MODES", ways)
    with open_grader(tmp_path, seconds=0.5) as grader:
        verdict = grade(grader, tmp_path)
    assert [one.name for one in verdict.timing.baselines] == ["eager"]
    assert verdict.status == "correct"
    (said,) = [one.message for one in verdict.diagnoses if one.code == "not_appraised"]
    assert "torch.compile's max-autotune was not timed: it was not ready after 0 s; --regrade goes on" in said
    assert not list((tmp_path / "cache").glob("*.baselines.json"))  # the next Grader tries again
