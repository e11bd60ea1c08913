"""A profile lists the operators that ran; a failure of the profiler or the submission is reported."""

import pytest
import torch
from torch import nn

from grader import protocol as p
from grader.worker.checks.profile import profile
from grader.worker.compile.importing import Builder
from grader.worker.session import Inputs, Session


class Model(nn.Module):
    def __init__(self, fails=False):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.fails = fails

    def forward(self, x):
        if self.fails:
            raise RuntimeError("not under a profiler")
        return torch.relu(self.layer(x))


def profiled(model):
    session = Session(Builder())
    x = torch.randn(3, 4)
    session.add_model("model", model)
    session.inputs["a"] = Inputs([x], {"input[0]": x})
    return profile(session, p.Profile(forward=p.Forward(model="model", inputs="a", tape="a")))


def test_operators_are_listed_with_their_calls():
    profile_of_model = profiled(Model())
    calls = {kernel.name: kernel.calls for kernel in profile_of_model.kernels}
    assert calls["aten::addmm"] == 1
    assert calls["aten::relu"] == 1
    assert profile_of_model.trouble == ""
    assert (profile_of_model.streams, profile_of_model.graphs) == (0, 0)


def test_a_submission_that_raises_is_reported():
    assert profiled(Model(fails=True)) == p.Profiled(trouble="RuntimeError: not under a profiler")


def test_a_profiler_that_fails_is_reported(monkeypatch):
    def broken(*args, **kwargs):
        raise OSError("no counters")

    monkeypatch.setattr(torch.autograd.profiler, "profile", broken)
    assert profiled(Model()) == p.Profiled(trouble="OSError: no counters")


def test_the_protocol_limits_the_number_of_names():
    with pytest.raises(ValueError, match="at most 64"):
        p.Profiled(kernels=tuple(p.Kernel(name=str(i), calls=1, ms=0.0) for i in range(p.MAX_KERNELS + 1)))
