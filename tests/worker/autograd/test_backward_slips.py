"""Each slip does one thing wrong in the reference's own backward, and a step that cannot go wrong so stays right."""

import pytest
import torch
from torch.nn import functional

from grader.protocol import Slip
from grader.worker.autograd.changes import changed_backward, changed_forward
from grader.worker.autograd.sources import Sources
from grader.worker.autograd.substitutes import substituted


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def gradients(function, *operands, within, what=""):
    """(mode, gradients) of one run."""
    leaves = [operand.clone().requires_grad_() for operand in operands]
    change = Slip(within=within, what=what)
    named = dict(zip("xyz", leaves, strict=False)) if within not in ("forward", "detached") else {}
    with substituted("spelled_out"), changed_forward(change, named) as forward:
        y = function(*leaves)
    with changed_backward(change, getattr(forward, "sources", Sources())) as backward:
        found = torch.autograd.grad(y, leaves, drawn(*y.shape), allow_unused=True)
    mode = forward if within in ("forward", "detached") else backward
    assert mode.name == what
    return mode, found


def slips(function, *operands, within=None):
    """The gradients by slip; without `within`, those of the backward's own operands."""
    if within is None:
        return {**slips(function, *operands, within="backward"), **slips(function, *operands, within="turned")}
    listed, _ = gradients(function, *operands, within=within)
    return {slip.what: gradients(function, *operands, within=within, what=slip.what)[1] for slip in listed.slips}


def masked(x):
    return torch.where(x > 0, x, 0.5)


def test_a_kind_of_operator_is_left_out():
    (found,) = slips(lambda x: x.cumsum(1), drawn(3, 5))["every `flip` of the backward left out"]
    torch.testing.assert_close(found, drawn(3, 5).cumsum(1))


@pytest.mark.parametrize(
    ("name", "function"),
    [("clamp", lambda x: x.clamp(-0.5, 0.5)), ("clamp_min", lambda x: x.clamp_min(0.1)), ("where", masked)],
)
def test_a_mask_is_left_out_and_named_by_its_function(name, function):
    (found,) = slips(function, drawn(3, 5))[f"the mask of `{name}` left out of the backward"]
    torch.testing.assert_close(found, drawn(3, 5))


def test_only_one_use_of_a_tensor_gives_it_a_gradient():
    name = "every `add` of the backward left out, such as those that sum what several uses of a tensor give it"
    (found,) = slips(lambda x: torch.cat([x, 2 * x, 4 * x]), drawn(5))[name]
    parts = [factor * part for factor, part in zip((1, 2, 4), drawn(15).view(3, 5), strict=True)]
    assert any(torch.allclose(found, part) for part in parts)


def test_of_the_samples_that_share_a_number_the_first_alone_counts():
    x = drawn(3, 5)
    found = slips(lambda x, gain: x * gain, x, torch.tensor(0.7, dtype=torch.float64))
    name = "a `sum` of the backward that takes only index 0 (the first) of dimension 0"
    torch.testing.assert_close(found[name][1], (drawn(3, 5) * x)[0].sum())


def test_the_gate_of_an_activation_is_taken_for_a_constant():
    x = drawn(3, 5)
    (found,) = slips(functional.silu, x, within="detached")["the gate of `silu` detached"]
    torch.testing.assert_close(found, drawn(3, 5) * torch.sigmoid(x))


def test_of_the_jacobian_of_softmax_the_diagonal_is_left():
    x = drawn(3, 5)
    (found,) = slips(lambda x: x.softmax(1), x)["a `sum` of `_softmax_backward_data` left out"]
    y = x.softmax(1)
    torch.testing.assert_close(found, drawn(3, 5) * y * (1 - y))


def test_a_sum_over_the_batch_leaves_out_what_fills_no_tile():
    x, weight = drawn(37, 3), drawn(5, 3)
    found = slips(functional.linear, x, weight)["a `mm` over the first 32 of 37 terms in the backward"]
    torch.testing.assert_close(found[1], drawn(37, 5)[:32].T @ x[:32])


def test_what_an_operator_takes_stands_for_its_result():
    x = drawn(4, 3)
    found = slips(torch.tanh, x)
    name = "what `tanh` takes in place of its result, as `output` of shape [4, 3] of `tanh_backward` in the backward"
    torch.testing.assert_close(found[name][0], drawn(4, 3) * (1 - x * x))


def test_a_window_is_not_flipped():
    x, weight = drawn(1, 2, 6, 6), drawn(2, 2, 3, 3)
    found = slips(lambda x, weight: functional.conv2d(x, weight, padding=1), x, weight)
    name = "`weight` of shape [2, 2, 3, 3] of `convolution_backward` in the backward flipped along dimensions 2 and 3"
    wrong = functional.conv2d(drawn(1, 2, 6, 6), weight.transpose(0, 1), padding=1)
    torch.testing.assert_close(found[name][0], wrong)
    name = name.replace("flipped", "transposed in dimensions 0 and 1 and flipped")
    torch.testing.assert_close(found[name][0], functional.conv2d(drawn(1, 2, 6, 6), weight, padding=1))


def test_a_step_of_a_derivative_is_left_out():
    x = drawn(4, 5)
    (found,) = slips(lambda x: x.softmax(1), x)["every `sub` of `_softmax_backward_data` left out"]
    torch.testing.assert_close(found, drawn(4, 5) * x.softmax(1))


def test_a_term_of_a_sum_is_missing():
    x = drawn(3, 4)
    found = [one[0] for name, one in slips(lambda x: x * x.exp(), x).items() if "`add` of the backward without" in name]
    assert len(found) == 2
    torch.testing.assert_close(sum(found), drawn(3, 4) * x.exp() * (1 + x))


def test_an_operand_is_taken_for_a_constant():
    x = drawn(3, 4)
    found = slips(lambda x: x * x.mean(1, keepdim=True), x, within="detached")
    grad, mean = drawn(3, 4), x.mean(1, keepdim=True)
    torch.testing.assert_close(found["operand 2, of shape [3, 1], of `mul` detached"][0], grad * mean)
    through_mean = (grad * x).sum(1, keepdim=True).expand(3, 4) / 4
    torch.testing.assert_close(found["operand 1, of shape [3, 4], of `mul` detached"][0], through_mean)
    found = slips(lambda x, y: torch.cat([x, y], 1).exp(), x, drawn(3, 2), within="detached")
    assert list(found) == [
        f"operand {at}, of shape {shape}, of `cat` detached" for at, shape in ((1, [3, 4]), (2, [3, 2]))
    ]


def test_the_statistics_of_a_norm_are_taken_for_constants():
    x = drawn(3, 4)
    found = slips(lambda x: functional.layer_norm(x, [4]), x, within="detached")
    constant = found["the result of `mean` taken for a constant in `layer_norm`"]
    torch.testing.assert_close(constant[0], drawn(3, 4) * (x.var(1, keepdim=True, correction=0) + 1e-5).rsqrt())
    found = slips(lambda x: functional.normalize(x), x, within="detached")
    constant = found["the result of `norm` taken for a constant in `normalize`"]
    torch.testing.assert_close(constant[0], drawn(3, 4) / x.norm(dim=1, keepdim=True))


def test_a_sum_over_the_other_dimension_of_a_square():
    x, y = drawn(4, 4), drawn(4)
    found = slips(lambda x, y: x * y, x, y)["a `sum` over dimension 1 for 0 of the backward"]
    torch.testing.assert_close(found[1], (drawn(4, 4) * x).sum(1))


def test_a_bound_is_forgotten_and_values_stay_right():
    x = 4 * drawn(3, 4)
    found = slips(lambda x: functional.relu6(x).square(), x, within="forward")
    right = 2 * functional.relu6(x)
    torch.testing.assert_close(found["`relu` in place of `relu6`"][0], drawn(3, 4) * right * (x > 0))


@pytest.mark.parametrize("weighted", [True, False])
def test_a_norm_takes_the_unbiased_variance(weighted):
    x, weight = 2 * drawn(3, 4, 5), drawn(4) if weighted else None
    found = slips(lambda x: functional.group_norm(x, 2, weight, eps=0.1), x, within="forward")
    leaf = x.clone().requires_grad_()
    grouped = leaf.view(3, 2, 10)
    variance, mean = torch.var_mean(grouped, -1, keepdim=True)
    normed = ((grouped - mean) / (variance + 0.1).sqrt()).view(3, 4, 5)
    (right,) = torch.autograd.grad(normed * weight[:, None] if weighted else normed, leaf, drawn(3, 4, 5))
    torch.testing.assert_close(found["the unbiased variance in `group_norm`"][0], right)


def test_a_term_has_the_other_sign():
    x = drawn(3, 4)
    name = "the other sign of `other` of shape [3, 4] in a `add` of `gelu_backward`"
    below, density = 0.5 * (1 + torch.erf(x / 2**0.5)), torch.exp(-0.5 * x * x) / (2 * torch.pi) ** 0.5
    torch.testing.assert_close(slips(functional.gelu, x)[name][0], drawn(3, 4) * (below - x * density))


def test_the_steps_of_a_derivative_do_not_import_sympy(beside_torch):
    code = """
import sys, torch
from grader.protocol import Slip
from grader.worker.autograd import engine
from grader.worker.autograd.changes import changed_backward
from grader.worker.autograd.sources import Sources

x = torch.ones(4, 5, requires_grad=True)
y = x.softmax(1)
what = "every `mul` of `_softmax_backward_data` left out"
with changed_backward(Slip(within="backward", what=what), Sources()) as backward:
    engine.gradients([y], [x], [torch.ones(4, 5)])
print(backward.name, "sympy" in sys.modules)
"""
    assert beside_torch.run(code) == "every `mul` of `_softmax_backward_data` left out False\n"


@pytest.mark.parametrize(
    ("function", "name", "wrong"),
    [
        (
            lambda x: functional.leaky_relu(x, 0.3),
            "`negative_slope` of `leaky_relu` at its default, 0.01",
            lambda x: functional.leaky_relu(x, 0.01),
        ),
        (
            lambda x: functional.softplus(x, beta=2.0),
            "`beta` of `softplus` at its default, 1",
            functional.softplus,
        ),
        (
            lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True),
            "`is_causal` of `scaled_dot_product_attention` at its default, False",
            lambda x: functional.scaled_dot_product_attention(x, x, x),
        ),
    ],
)
def test_an_option_is_at_its_default(function, name, wrong):
    x = drawn(2, 5, 4)
    found = slips(function, x, within="forward")
    assert name in found
    leaf = x.clone().requires_grad_()
    y = wrong(leaf)
    torch.testing.assert_close(found[name], torch.autograd.grad(y, leaf, drawn(*y.shape)))


def test_a_default_that_changes_the_shape_changes_nothing():
    x = drawn(4, 6)
    found = slips(lambda x: functional.mse_loss(x, torch.zeros_like(x), reduction="none"), x, within="forward")
    torch.testing.assert_close(found["`reduction` of `mse_loss` at its default, mean"], (2 * x * drawn(4, 6),))


def test_no_flag_of_a_norm_is_turned():
    """Without running statistics, the operator of eval() ends the process."""
    found = slips(lambda x: functional.instance_norm(x), drawn(3, 4, 5, 6))
    assert found
    assert not [name for name in found if "set to" in name]


def test_a_flag_of_a_backward_is_turned():
    (found,) = slips(lambda x: functional.avg_pool2d(x, 3, 2, 1), drawn(2, 3, 6, 6))[
        "`count_include_pad` of `avg_pool2d_backward` in the backward set to False"
    ]
    leaf = drawn(2, 3, 6, 6).requires_grad_()
    y = functional.avg_pool2d(leaf, 3, 2, 1, count_include_pad=False)
    torch.testing.assert_close(found, torch.autograd.grad(y, leaf, drawn(*y.shape))[0])


def test_no_slip_breaks_a_backward():
    def function(x, w):
        scores = functional.softmax((x @ w).masked_fill(x[:, :1] > 1, -9.0), -1)
        return functional.layer_norm(scores @ w, [w.shape[1]]).cumprod(1).index_select(0, torch.tensor([0, 0, 2]))

    operands = drawn(3, 4), drawn(4, 4)
    _, right = gradients(function, *operands, within="backward")
    found = slips(function, *operands)
    assert len(found) > 40
    shapes = [None if gradient is None else gradient.shape for gradient in right]
    for one in found.values():
        assert all(gradient is None or gradient.shape == shape for gradient, shape in zip(one, shapes, strict=True))


def test_a_tensor_of_the_forward_stands_for_another():
    x, y = drawn(4, 3), drawn(3, 4).T.contiguous()
    found = slips(lambda x, y: torch.sigmoid(x) * y, x, y, within="operands")
    grad, gate = drawn(4, 3), torch.sigmoid(x)
    to_gate = gate * (1 - gate)
    due = {
        "`x` in place of the result of `sigmoid`": (grad * y * to_gate, grad * x),
        "1 less the result of `sigmoid` in place of the result of `sigmoid`": (grad * y * to_gate, grad * (1 - gate)),
        "`x` in place of `y`": (grad * x * to_gate, grad * gate),
    }
    for what, gradients_due in due.items():
        place = "as `other` of shape [4, 3] of `mul` in the backward"
        torch.testing.assert_close(found[f"{what}, {place}"], gradients_due)
    assert all("in place of" in name for name in found)


def test_what_a_derivative_takes_stands_for_its_result():
    x, y = drawn(4, 3), drawn(3, 4).T.contiguous()
    found = slips(lambda x, y: torch.tanh(x * y), x, y)
    name = "what `tanh_backward` takes in place of its result, as `self` of shape [4, 3] of `mul` in the backward"
    assert any(torch.allclose(gradient, drawn(4, 3) * y) for gradient in found[name])


def test_one_factor_of_several_is_left_out():
    found = slips(lambda x: (x * 3).sin() * 5, drawn(4))
    torch.testing.assert_close(found["a `mul` by 3 of the backward left out"][0], drawn(4) * 5 * (drawn(4) * 3).cos())
    torch.testing.assert_close(found["a `mul` by 5 of the backward left out"][0], drawn(4) * 3 * (drawn(4) * 3).cos())


def test_a_sum_takes_its_first_term_only():
    (found,) = slips(lambda x: x[:, None].expand(3, 2, 4), drawn(3, 4))[
        "a `sum` over dimension 1 of the backward that takes only index 0 (the first)"
    ]
    torch.testing.assert_close(found, drawn(3, 2, 4)[:, 0])


@pytest.mark.parametrize(
    "function", [lambda x, i: x.gather(0, i), lambda x, i: x.index_select(0, i), lambda x, i: x[i]]
)
def test_one_of_the_values_for_an_index_is_kept(function):
    index = torch.tensor([1, 0, 1])
    found = slips(lambda x: function(x, index), drawn(4))
    (wrong,) = [one[0] for name, one in found.items() if "keeps one" in name or "`accumulate`" in name]
    torch.testing.assert_close(wrong, torch.zeros(4).double().index_copy(0, index, drawn(3)))


def test_one_of_the_windows_of_a_maximum_is_kept():
    x = torch.zeros(1, 1, 5, 5, dtype=torch.float64)
    x[0, 0, 2, 2] = 1
    found = slips(lambda x: functional.max_pool2d(x, 3, 1), x)
    (wrong,) = found["`max_pool2d_with_indices_backward` of the backward that keeps one of the values for an index"]
    assert wrong[0, 0, 2, 2] in drawn(1, 1, 3, 3)
    assert wrong.count_nonzero() == 1


def test_a_slip_is_made_in_one_call_or_in_all():
    def run(x, turn, what="`tanh` left out"):
        with changed_forward(Slip(within="forward", what=what, turn=turn), {}) as mode, torch.no_grad():
            y = (2 * (2 * x.tanh()).tanh()).tanh()
        return y if what else mode.slips

    x = drawn(5)
    assert [slip.times for slip in run(x, None, "") if slip.what == "`tanh` left out"] == [3]
    torch.testing.assert_close(run(x, None), 4 * x)
    torch.testing.assert_close(run(x, 1), (4 * x.tanh()).tanh())
    torch.testing.assert_close(run(x, 3), (2 * (2 * x.tanh()).tanh()).tanh())


def test_a_conjugate_is_left_out():
    re, im = drawn(3), drawn(3).flip(0) + 1

    def function(re, im):
        return torch.view_as_real(torch.complex(re, im) * torch.complex(im.detach(), re.detach()))

    found = slips(function, re, im)["a `conj` of the backward left out"]
    wrong = torch.view_as_complex(drawn(3, 2)) * torch.complex(im, re)
    torch.testing.assert_close(found, (wrong.real, wrong.imag))


def test_a_border_is_cut_off_on_the_other_side():
    (found,) = slips(lambda x: functional.pad(x, (2, 0)), drawn(3, 4))[
        "the borders of `constant_pad_nd` in the backward on the other side"
    ]
    torch.testing.assert_close(found, drawn(3, 6)[:, :4])


def test_a_view_behind_a_slip_finds_the_strides_that_it_needs():
    (wrong,) = slips(lambda x: x.view(2, 3, 4).transpose(0, 2), drawn(6, 4))["every `clone` of the backward left out"]
    torch.testing.assert_close(wrong, drawn(4, 3, 2).transpose(0, 2).reshape(6, 4))


def test_a_sparse_gradient_stays_as_it_is():
    """With as many tokens as rows, the gradient has the shape of its values."""
    tokens = torch.tensor([0, 0, 2])

    def rows(table):
        return functional.embedding(tokens, table, sparse=True).sin()

    (wrong,) = slips(rows, drawn(3, 5))["every `cos` of the backward left out"]
    right = torch.zeros(3, 5).double().index_add(0, tokens, drawn(3, 5) * drawn(3, 5)[tokens])
    torch.testing.assert_close(wrong.to_dense(), right)
