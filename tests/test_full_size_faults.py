"""Each fault of `fuzz/full_size.py` makes a submission that runs, and changes something."""

import json
import subprocess
import sys

import pytest
import torch

from fuzz.full_size import FAULTS, with_fault

SOURCE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features):
        super(Model, self).__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x):
        return self.norm(self.linear(x))


def get_inputs():
    return [torch.randn(9, 8)]


def get_init_inputs():
    return [8]
"""
ON_GPUS = {"tensorfloat32"}


def results(name, source):
    """Outputs of two forwards, gradients and buffers."""
    names = {}
    exec(compile(source, name, "exec"), names)
    torch.manual_seed(0)
    model = names[name](8)
    found = []
    for _ in range(2):
        x = torch.randn(9, 8, requires_grad=True)
        output = model(x)
        wrt = [x, *model.parameters()]
        grads = (
            torch.autograd.grad(output, wrt, 10 * torch.ones_like(output).tril(), allow_unused=True)
            if (output.requires_grad and not found)
            else [None] * len(wrt)
        )
        found += [output.detach(), *(torch.zeros(()) if grad is None else grad for grad in grads)]
    return [*found, *model.buffers()]


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_something(name):
    right = results("Model", SOURCE)
    wrong = results("ModelNew", with_fault(SOURCE, FAULTS[name]))
    same = [a.shape == b.shape and torch.equal(a, b) for a, b in zip(right, wrong, strict=True)]
    assert all(same) == (name in ON_GPUS)


def test_lines_are_those_of_a_batch(tmp_path):
    folder = tmp_path / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    (folder / "1_Small.py").write_text(SOURCE)
    command = [sys.executable, "-m", "fuzz.full_size", "--checkout", str(tmp_path), "--faults", "99"]
    lines = [json.loads(line) for line in subprocess.check_output(command, text=True).splitlines()]
    assert {line["label"] for line in lines} <= set(FAULTS)
    assert len(lines) > 10
    assert {line["problem"] for line in lines} == {"1_Small"}
    refused = subprocess.run([*command[:3], "--checkout", str(tmp_path / "no")], capture_output=True, text=True)
    assert refused.returncode == 2
    assert "has no folder KernelBench" in refused.stderr
