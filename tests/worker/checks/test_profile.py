"""The profiler tells which operators ran; when it fails, or what it looks at, that is an answer too."""

import pytest
import torch
from torch import nn

from grader import protocol as p
from grader.worker.compile.importing import Builder
from grader.worker.session import Bench, Inputs


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
    bench = Bench(Builder())
    x = torch.randn(3, 4)
    bench.models["model"], bench.inputs["a"] = model, Inputs([x], {"input[0]": x})
    return bench.run(p.Profile(forward=p.Forward(model="model", inputs="a", tape="a")), [])


def test_operators_with_their_calls():
    seen = profiled(Model())
    calls = {kernel.name: kernel.calls for kernel in seen.kernels}
    assert calls["aten::addmm"] == 1
    assert calls["aten::relu"] == 1
    assert seen.trouble == ""
    assert (seen.streams, seen.graphs) == (0, 0)


def test_a_submission_that_raises_is_an_answer():
    assert profiled(Model(fails=True)) == p.Profiled(trouble="RuntimeError: not under a profiler")


def test_a_profiler_that_fails_is_an_answer(monkeypatch):
    def broken(*args, **kwargs):
        raise OSError("no counters")

    monkeypatch.setattr(torch.autograd.profiler, "profile", broken)
    assert profiled(Model()) == p.Profiled(trouble="OSError: no counters")


def test_no_more_names_than_the_protocol_takes():
    with pytest.raises(ValueError, match="at most 64"):
        p.Profiled(kernels=tuple(p.Kernel(name=str(i), calls=1, ms=0.0) for i in range(p.MAX_KERNELS + 1)))
