"""Each slip of a forward computes one other thing, of the same shape or of one that broadcasts; or nothing changes."""

import pytest
import torch
from torch.nn import functional

from grader.protocol import Slip
from grader.worker.autograd.changes import changed_forward
from grader.worker.autograd.substitutes import substituted

BAGS = torch.tensor([[0, 4, 2], [3, 3, 1]])
"""Rows of a table, by bag."""
GRID = torch.linspace(-1.2, 1.1, 3 * 2 * 2 * 2, dtype=torch.float64).view(3, 2, 2, 2).sin() * 1.1
"""Places in images, some of them outside."""


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def slips(function, *operands, within="forward"):
    """The outputs by slip, made in all calls in which it can be made."""

    def one(what=""):
        with substituted("spelled_out"), changed_forward(Slip(within=within, what=what), {}) as mode:
            result = function(*operands)
        assert mode.name == what
        return mode.slips, result

    return {slip.what: one(slip.what)[1] for slip in one()[0]}


def gated(value, gate):
    return value * torch.sigmoid(gate)


def normed(x, dim):
    return (x - x.mean(dim, keepdim=True)) / x.std(dim=dim, keepdim=True)


@pytest.mark.parametrize(
    ("function", "name", "wrong"),
    [
        (
            lambda x: functional.avg_pool2d(x, 2, 1, 1),
            "`count_include_pad` of `avg_pool2d` set to False",
            lambda x: functional.avg_pool2d(x, 2, 1, 1, count_include_pad=False),
        ),
        (
            lambda x: functional.softmax(x, -1),
            "`softmax` over dimension 1 in place of 3",
            lambda x: functional.softmax(x, 1),
        ),
        (lambda x: x.var(1), "`var` by n in place of n - 1", lambda x: x.var(1, correction=0)),
        (lambda x: x.std((2, 3), False), "`std` by n - 1 in place of n", lambda x: x.std((2, 3))),
        (lambda x: torch.std(x, 1, correction=0), "`std` by n - 1 in place of n", lambda x: x.std(1)),
        (
            lambda x: functional.conv2d(x, x[:2, :, :3, :3], padding=1),
            "the borders of `conv2d` in mode reflect",
            lambda x: functional.conv2d(functional.pad(x, (1, 1, 1, 1), mode="reflect"), x[:2, :, :3, :3]),
        ),
        (
            lambda x: functional.conv2d(x, x[:2, :, :3, :5], padding=(1, 2)),
            "the borders of `conv2d` all before the input",
            lambda x: functional.conv2d(functional.pad(x, (4, 0, 2, 0)), x[:2, :, :3, :5]),
        ),
        (lambda x: x.transpose(1, 2).exp(), "a `reshape` in place of `transpose`", lambda x: x.view(3, 5, 4, 6).exp()),
        (lambda x: x * 6**-0.5, "sqrt(5) in place of sqrt(6) in `mul`", lambda x: x * 5**-0.5),
        (lambda x: x / 6**0.5, "6 in place of sqrt(6) in `div`", lambda x: x / 6),
        (
            lambda x: functional.hardtanh(x, -0.5, 0.5),
            "`min_val` and `max_val` of `hardtanh` at their defaults",
            functional.hardtanh,
        ),
        (
            lambda x: torch.logaddexp(x, x.flip(0)),
            "`maximum` in place of `logaddexp`",
            lambda x: torch.maximum(x, x.flip(0)),
        ),
        (lambda x: x.logsumexp(2), "`amax` in place of `logsumexp`", lambda x: x.amax(2)),
        (
            lambda x: functional.embedding_bag(BAGS, x[0, 0], mode="mean"),
            "the sum of `embedding_bag` in place of its mean",
            lambda x: functional.embedding_bag(BAGS, x[0, 0], mode="sum"),
        ),
        (lambda x: x.clamp(-0.5, 0.5), "`clamp` without its upper bound", lambda x: x.clamp_min(-0.5)),
        (lambda x: torch.clip(x, max=1, min=0), "`clip` without its lower bound", lambda x: x.clamp_max(1)),
        (
            lambda x: functional.layer_norm(x, x.shape[2:]),
            "`layer_norm` over the last dimension alone",
            lambda x: functional.layer_norm(x, x.shape[3:]),
        ),
        (lambda x: x.sum(1) / 4, "`div` by 3 in place of 4", lambda x: x.sum(1) / 3),
        (
            lambda x: x.sum((1, 2)),
            "`sum` over the first 4 of 5 elements along dimension 2",
            lambda x: x[:, :, :4].sum((1, 2)),
        ),
        (
            lambda x: x.mean(-1),
            "`mean` over the first 4 of 6 elements along dimension 3",
            lambda x: x[..., :4].sum(-1) / 6,
        ),
        (lambda x: x @ x.mT, "`matmul` over the first 4 of 6 terms", lambda x: x[..., :4] @ x[..., :4].mT),
        (
            lambda x: x.max(3)[0].exp(),
            "`max` over the first 4 of 6 elements along dimension 3",
            lambda x: x[..., :4].amax(3).exp(),
        ),
        (lambda x: x @ x.mT, "`matmul` over the last 2 of 6 terms", lambda x: x[..., 4:] @ x[..., 4:].mT),
        (lambda x: (x * x + 0.1).rsqrt(), "`sqrt` before `add`", lambda x: 1 / (x.abs() + 0.1)),
        (
            lambda x: functional.linear(x, x[0, 0], x[0, 0, :, 0]),
            "`linear` over the first 4 of 6 terms",
            lambda x: functional.linear(x[..., :4], x[0, 0, :, :4], x[0, 0, :, 0]),
        ),
        (lambda x: x.triu(1), "`triu` at diagonal 0 in place of 1", torch.triu),
        (lambda x: torch.cumsum(x, 2), "`cumsum` without the element itself", lambda x: x.cumsum(2) - x),
        (
            lambda x: functional.max_pool2d(x, 3, 2, padding=1),
            "the borders of `max_pool2d` filled with zeros",
            lambda x: functional.max_pool2d(functional.pad(x, (1, 1, 1, 1)), 3, 2),
        ),
        (
            lambda x: torch.nn.MaxPool1d(3, 1, 1)(x[0]),
            "the borders of `max_pool1d` filled with zeros",
            lambda x: functional.max_pool1d(functional.pad(x[0], (1, 1)), 3, 1),
        ),
        (lambda x: x.masked_fill(x > 1, -9), "`masked_fill` by 0", lambda x: x.masked_fill(x > 1, 0)),
        (
            lambda x: x.masked_fill(x > 1, -9),
            "`masked_fill` where its mask is False",
            lambda x: x.masked_fill(x <= 1, -9),
        ),
        (lambda x: x.log_softmax(dim=1), "`log_softmax` over dimension 3 in place of 1", lambda x: x.log_softmax(3)),
        (
            lambda x: x / x.norm(dim=1, keepdim=True),
            "`norm` over dimension 2 in place of 1",
            lambda x: x / x.norm(dim=2, keepdim=True),
        ),
        (
            lambda x: torch.softmax(x.topk(2, 1).values, 1),
            "`softmax` over all elements that `topk` chooses from",
            lambda x: torch.softmax(x, 1).topk(2, 1).values,
        ),
        (
            lambda x: x.softmax(1).topk(2, dim=1)[0],
            "the values of `topk` divided by their sum",
            lambda x: x.topk(2, dim=1)[0].softmax(1),
        ),
        (
            lambda x: torch.softmax(x.masked_fill(x > 1, -torch.inf), 1),
            "`masked_fill` by 0 behind `softmax`",
            lambda x: torch.softmax(x, 1).masked_fill(x > 1, 0),
        ),
        (
            lambda x: functional.grid_sample(x, GRID, align_corners=False),
            "`align_corners` of `grid_sample` set to True",
            lambda x: functional.grid_sample(x, GRID, align_corners=True),
        ),
        (
            lambda x: functional.grid_sample(x, GRID, align_corners=False),
            "`padding_mode` of `grid_sample` set to border",
            lambda x: functional.grid_sample(x, GRID, padding_mode="border", align_corners=False),
        ),
        (lambda x: x.mean(), "`mean` without the division by 4 (dimension 1)", lambda x: 4 * x.mean()),
        (
            lambda x: x / x.sum(1, keepdim=True),
            "the number of elements, 4, in place of their `sum`",
            lambda x: x / 4,
        ),
        (lambda x: x.sigmoid() * x, "`1 - sigmoid` in place of `sigmoid`", lambda x: (1 - x.sigmoid()) * x),
        (lambda x: x / x.abs().clamp(min=1), "`add` of 1 in place of `clamp`", lambda x: x / (x.abs() + 1)),
        (lambda x: x.cumsum(1), "`cumsum` over dimension 2 in place of 1", lambda x: x.cumsum(2)),
        (lambda x: x * (x < x.amax()), "`<=` in place of `<`", lambda x: x),
        (
            lambda x: functional.pad(x, (3, 1)),
            "the borders of `pad` half on either side",
            lambda x: functional.pad(x, (2, 2)),
        ),
        (
            lambda x: functional.normalize(x),
            "`normalize` over dimension 3 in place of 1",
            lambda x: functional.normalize(x, dim=3),
        ),
        (
            lambda x: normed(x, 3),
            "every reduction over dimension 1 in place of 3",
            lambda x: normed(x, 1),
        ),
        (
            lambda x: functional.layer_norm(x, [6], bias=x[0, 0, 0]),
            "`layer_norm` over dimension 2 in place of 3",
            lambda x: functional.layer_norm(x.mT, [5]).mT + x[0, 0, 0],
        ),
        (
            lambda x: functional.group_norm(x, 2),
            "`num_groups` of `group_norm` set to 4",
            lambda x: functional.group_norm(x, 4),
        ),
    ],
)
def test_another_option_or_dimension(function, name, wrong):
    x = drawn(3, 4, 5, 6)
    torch.testing.assert_close(slips(function, x)[name], wrong(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.where(x > 0, input=x, other=2.0),
        lambda x: torch.triu(input=x, diagonal=1),
        lambda x: torch.permute(input=x, dims=(0, 2, 1)),
        lambda x: x[:, :1].var(1, correction=0),
        lambda x: torch.var(input=x, dim=1),
        lambda x: functional.conv1d(input=x, weight=x[:, :, :3], padding="same"),
        lambda x: functional.max_pool1d(x, 3, padding=1, stride=1, return_indices=True)[0],
        lambda x: torch.masked_fill(input=x, mask=x > 0, value=1),
    ],
)
@torch.no_grad()
def test_arguments_by_name_and_odd_ones_stop_no_slip(function):
    x = drawn(3, 4, 5)
    for what, wrong in slips(function, x).items():
        assert wrong.shape == function(x).shape or "`padding`" in what or "`ceil_mode`" in what


def test_calls_of_a_loop_are_told_apart_by_their_place():
    def run(x, what="", place=None):
        with changed_forward(Slip(within="forward", what=what, place=place), {}) as mode, torch.no_grad():
            for _ in range(3):
                x = torch.sigmoid(x) * torch.sigmoid(x + 1)
        return mode, x

    x, what = drawn(3, 4), "`1 - sigmoid` in place of `sigmoid`"
    (slip,) = [slip for slip in run(x)[0].slips if slip.what == what]
    assert (slip.times, len(slip.lines), len(set(slip.lines))) == (6, 2, 1)
    wrong = x
    for _ in range(3):
        wrong = torch.sigmoid(wrong) * (1 - torch.sigmoid(wrong + 1))
    torch.testing.assert_close(run(x, what, place=1)[1], wrong)


def test_layers_of_one_shape_are_told_apart_by_their_parameters():
    one, other = torch.nn.Linear(4, 4).double(), torch.nn.Linear(4, 4).double()
    parameters = {"one.weight": one.weight, "other.weight": other.weight, "input[0]": (x := drawn(3, 4))}

    def run(what):
        with changed_forward(Slip(within="forward", what=what), parameters) as mode, torch.no_grad():
            y = other(one(x))
        return mode, y

    found = {slip.what for slip in run("")[0].slips}
    assert "`linear` left out (with `one.weight`)" in found
    torch.testing.assert_close(run("`linear` left out (with `other.weight`)")[1], one(x))


@pytest.mark.parametrize(
    ("function", "name", "wrong"),
    [
        (
            lambda x: torch.where((x > 0) & (x < 1), x, 2.0),
            "`and` without its second operand of shape [3, 4, 5, 6]",
            lambda x: torch.where(x > 0, x, 2.0),
        ),
        (lambda x: x.exp() + x, "`add` without its second operand of shape [3, 4, 5, 6]", lambda x: x.exp()),
        (lambda x: x.exp() + x, "`add` without its first operand of shape [3, 4, 5, 6]", lambda x: x),
        (lambda x: (x * x + 1e-3).sqrt(), "another epsilon than 0.001, or none", lambda x: x.abs()),
        (lambda x: (x / 3).tanh(), "`div` without its second operand, 3", lambda x: x.tanh()),
        (lambda x: (x / 3).tanh(), "`tanh` left out", lambda x: x / 3),
        (lambda x: torch.where(x > 1, x, 2.0), "the second value of `where` everywhere", lambda x: 0 * x + 2),
        (lambda x: (x - x.mean()).exp(), "`add` in place of `sub`", lambda x: (x + x.mean()).exp()),
        (lambda x: x.mean(1).exp(), "`sum` in place of `mean`", lambda x: x.sum(1).exp()),
        (
            lambda x: functional.avg_pool2d(x, 2, 1).exp(),
            "`max_pool2d` in place of `avg_pool2d`",
            lambda x: functional.max_pool2d(x, 2, 1).exp(),
        ),
        (
            lambda x: x[:2].index_add(0, torch.tensor([1, 0, 1]), torch.stack([x[0], x[1], 2 * x[1]])),
            "`index_add` that keeps one of the values for an index",
            lambda x: torch.stack([x[1], 2 * x[1]]),
        ),
        (
            lambda x: torch.zeros(2, 4, 5, 6, dtype=x.dtype).index_add_(0, torch.tensor([1, 0, 1]), x),
            "`index_add` that keeps one of the values for an index",
            lambda x: torch.stack([x[1], x[2]]),
        ),
        (
            lambda x: functional.max_pool2d(x, 4, ceil_mode=True).mean((2, 3)),
            "`ceil_mode` of `max_pool2d` set to False",
            lambda x: functional.max_pool2d(x, 4).mean((2, 3)),
        ),
        (
            lambda x: functional.max_pool2d(x, 3, padding=1).mean((2, 3)),
            "`padding` of `max_pool2d` set to 0",
            lambda x: functional.max_pool2d(x, 3).mean((2, 3)),
        ),
        (
            lambda x: functional.avg_pool2d(x, 4).mean((2, 3)),
            "`ceil_mode` of `avg_pool2d` set to True",
            lambda x: functional.avg_pool2d(x, 4, ceil_mode=True).mean((2, 3)),
        ),
        (lambda x: (2 - x).exp(), "the operands of `rsub` exchanged", lambda x: (x - 2).exp()),
        (
            lambda x: functional.batch_norm(x, None, None, training=True, eps=0.1),
            "`sqrt` before `add` in `batch_norm`",
            lambda x: (x - x.mean((0, 2, 3), keepdim=True)) / (x.std((0, 2, 3), keepdim=True, correction=0) + 0.1),
        ),
        (
            lambda x: functional.layer_norm(x, x.shape[-1:], eps=0.1),
            "`sub` without its second operand of shape [3, 4, 5, 1] in `layer_norm`",
            lambda x: x * (x.square().mean(-1, keepdim=True) + 0.1).rsqrt(),
        ),
        (
            lambda x: gated(*x.chunk(2, 3)),
            "the two results of `chunk` exchanged",
            lambda x: gated(*x.chunk(2, 3)[::-1]),
        ),
    ],
)
@torch.no_grad()
def test_a_step_is_left_out_or_another(function, name, wrong):
    x = drawn(3, 4, 5, 6)
    torch.testing.assert_close(slips(function, x)[name], wrong(x))


def test_in_a_backward_no_step_of_the_forward_is_left_out():
    assert not any("left out" in name for name in slips(torch.tanh, drawn(4, 6).requires_grad_()))


def test_a_forward_that_is_computed_again_has_other_values():
    x = drawn(4, 6).requires_grad_()
    again = slips(lambda x: ((x + 1) * 2).tanh(), x, within="recomputed")
    torch.testing.assert_close(again["`add` without its second operand, 1"], (x * 2).tanh())
    (found,) = torch.autograd.grad(again["`mul` without its second operand, 2"].sum(), x)
    (due,) = torch.autograd.grad((x + 1).tanh().sum(), x)
    torch.testing.assert_close(found, due)


def test_a_dimension_of_another_shape_changes_nothing():
    x = drawn(4, 6)
    found = slips(lambda x: x.mean(1), x)
    torch.testing.assert_close(found["`mean` over dimension 0 in place of 1"], x.mean(1))


def test_a_sum_of_all_elements_has_no_other_dimension():
    found = slips(lambda x: x.sum() + x.mean((0, 1)) + x.amax(), drawn(4, 4))
    assert [what for what in found if " over " in what] == []
