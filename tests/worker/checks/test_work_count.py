"""Counting the reference's work."""

import pytest
import torch

from grader import protocol as p
from grader.worker.checks import work_count
from grader.worker.compile.importing import Builder
from grader.worker.session import Inputs, Session


class Products(torch.nn.Module):
    def forward(self, x):
        return x.cumprod(1)


@pytest.mark.parametrize(("seconds", "counts_backward"), [(60.0, True), (0.0, False)])
def test_a_backward_that_takes_too_long_is_not_counted(monkeypatch, seconds, counts_backward):
    """cumprod's backward takes one step for each element of a row while operators are counted."""
    x = torch.rand(2, 400)
    session = Session(Builder(), inputs={"a": Inputs([x], {"input[0]": x.requires_grad_()})})
    session.add_model("m", Products())
    monkeypatch.setattr(work_count, "SECONDS", seconds)
    monkeypatch.setattr(work_count, "cotangent", lambda session, value: torch.ones(2, 400))
    slot = p.Slot(offset=0, dtype="float32", shape=(2, 400))
    step = p.Count(model="m", inputs="a", cotangents={"output": p.Cotangent(slot=slot)}, wrt=("input[0]",))
    counted = work_count.count(session, step)
    assert counted.forward.operations == 1
    assert (counted.backward is not None) == counts_backward


def test_triton_is_not_imported_to_count_and_can_be_afterwards(beside_torch):
    """Its import takes a tenth of a second in each reference's process."""
    code = """
import importlib.util, sys
from grader.worker.checks.work_count import flop_formulas
import torch
assert torch.ops.aten.mm in flop_formulas()
assert "triton" not in sys.modules
if importlib.util.find_spec("triton"):
    import triton
"""
    beside_torch.run(code)


class Product(torch.nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, a, b):
        return self.change(a) @ b


@pytest.mark.parametrize(
    ("change", "share"),
    [
        (lambda a: a, 1.0),
        (torch.relu, 1.0),  # strewn zeros fill no tile
        (torch.zeros_like, 1.0),  # weights that begin at zero do not stay there
        (torch.triu, 15 / 25),  # of 5 by 5 tiles
        (lambda a: torch.triu(a.mT).mT, 15 / 25),
        (lambda a: torch.diag(a[0]), 5 / 25),
        (lambda a: torch.cat([a[:, :64], torch.zeros_like(a[:, 64:])], 1), 1 / 5),
        (lambda a: torch.triu(a).expand(2, 300, 300), 15 / 25),
    ],
)
def test_tiles_of_zeros_are_no_work(change, share):
    torch.manual_seed(0)
    given = [torch.randn(300, 300), torch.randn(300, 200)]
    with work_count.Counter(given) as counter:
        output = Product(change)(*given)
    assert counter.work([output]).matmul == pytest.approx(2 * output.numel() * 300 * share, rel=1e-6)


@pytest.mark.parametrize(
    "layer",
    [
        torch.nn.Conv1d(64, 128, 3),
        torch.nn.Conv1d(64, 64, 3, groups=64),
        torch.nn.Conv2d(64, 32, (3, 1), groups=4, stride=2),
        torch.nn.ConvTranspose2d(64, 32, 3, groups=8, stride=2),
    ],
)
@pytest.mark.parametrize("of_input", [True, False])
def test_each_gradient_of_a_convolution_takes_as_many_operations_as_its_forward(layer, of_input):
    """PyTorch's formula counts a grouped weight's gradient once for each pair of groups."""
    x = torch.randn(2, 64, *([16] * (layer.weight.dim() - 2)), requires_grad=of_input)
    with work_count.Counter([]) as forward:
        output = layer(x)
    with work_count.Counter([]) as backward:
        output.backward(torch.ones_like(output))
    done = forward.work([]).convolution
    assert done > 0
    assert backward.work([]).convolution == (2 if of_input else 1) * done


@pytest.mark.parametrize(("queries", "keys", "share"), [(100, 100, 5050 / 10000), (100, 40, (820 + 2400) / 4000)])
def test_causal_attention_counts_what_is_attended_to(queries, keys, share):
    """An implementation leaves out the others. No values are needed, and no GPU."""
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    query, key = (torch.empty(2, 3, rows, 8, device="meta") for rows in (queries, keys))
    for is_causal, expected in ((False, 1.0), (True, share)):
        with work_count.Counter([]) as counter:
            attention(query, key, key, 0.0, is_causal)
        assert counter.work([]).matmul == pytest.approx(expected * 4 * 2 * 3 * queries * keys * 8, rel=1e-6)


@pytest.mark.parametrize(
    ("function", "asserts"),
    [
        (lambda x: torch.nn.functional.binary_cross_entropy(x, x), True),
        (torch.bernoulli, True),
        (lambda x: torch.nn.functional.dropout(x, 0.5), False),
        (lambda x: torch.arange(9.0)[(8 * x).long()], True),
        (lambda x: torch.nn.functional.softmax(torch.relu(x - x.mean()) @ x.T, -1), False),
        (lambda x: x.gather(1, x.argmax(1, keepdim=True)), False),
    ],
)
def test_operators_that_refuse_values_are_noticed(function, asserts):
    """On a device, a value out of their range ends the process: no other inputs of both signs are asked there."""
    x = torch.rand(4, 6)
    session = Session(Builder(), inputs={"a": Inputs([x], {"input[0]": x})})
    module = torch.nn.Module()
    module.forward = function
    session.add_model("m", module)
    assert work_count.count(session, p.Count(model="m", inputs="a")).asserts is asserts


@pytest.mark.parametrize(
    ("function", "apart"),
    [
        (lambda i: i != 3, {3}),
        (lambda i: torch.where(i == 5, 0, i) > 7, {5}),
        (lambda i: i.float() == 2, set()),
        (lambda i: i == i.flip(0), set()),
        (lambda i: torch.nn.functional.embedding(i, torch.rand(9, 4), padding_idx=2), {2}),
        (lambda i: torch.nn.functional.embedding(i, torch.rand(9, 4)), set()),
        (lambda i: torch.nn.functional.embedding_bag(i, torch.rand(9, 4), padding_idx=4), {4}),
        (lambda i: torch.nn.functional.cross_entropy(torch.rand(6, 9), i[:, 0], ignore_index=8), {8}),
        (lambda i: torch.nn.functional.cross_entropy(torch.rand(6, 9), i[:, 0]), set()),
    ],
)
def test_integers_that_are_treated_apart_are_found(function, apart):
    with work_count.Counter([]) as counter:
        function(torch.arange(6)[:, None].expand(6, 5))
    assert counter.apart == apart


EDGES = torch.linspace(-1, 1, 5)


@pytest.mark.parametrize(
    ("function", "bounds"),
    [
        (lambda x, low, high: x.clamp(low[:, None], high[:, None]), ("low", "high")),
        (lambda x, low, high: torch.clamp_min(x, low[:, None]) * high[:, None], ("low",)),
        (lambda x, low, high: torch.minimum(torch.maximum(x, low[:, None]), high[:, None]), ("low", "high")),
        (lambda x, low, high: torch.maximum(x, low[:, None]) * high[:, None], ()),
        (lambda x, low, high: torch.bucketize(x, high), ("high",)),
        (lambda x, low, high: torch.searchsorted(low, x) * high[:, None], ("low",)),
        (lambda x, low, high: low.clamp(0, 1)[:, None] * x + high[:, None], ()),
    ],
)
def test_bounds_of_a_clamp_and_edges_of_bins_are_noted(function, bounds):
    x, named = torch.randn(5, 3), {"low": EDGES.clone(), "high": EDGES.clone()}
    with work_count.Counter([x, *named.values()]) as counter:
        function(x, **named)
    assert counter.bounds(named.items()) == bounds
