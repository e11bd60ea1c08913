"""Constants become parameters of both signs and several sizes, unless the reference needs them otherwise."""

import pytest
import torch

from grader.errors import ReferenceRefused
from grader.grading.oracle.trained_state import _filled, as_trained, first_training, positive
from grader.grading.oracle.traits import Traits
from grader.protocol import TensorInfo


def traits(*learned, tables=()):
    parameters = tuple(TensorInfo(name=name) for name in learned)
    return Traits((), parameters, (), False, False, True, 0.0, False, 0, frozenset(tables))


@pytest.mark.parametrize("level", [1.0, 0.25, -1.0])
def test_a_vector_of_ones_gets_both_signs_and_sizes_on_both_sides_of_one(level):
    moved = as_trained({"w": torch.full((8,), level)}, traits("w"))["w"]
    assert (moved > 1).any()
    assert (moved < -1).any()
    assert (moved.abs() < abs(level)).any()


@pytest.mark.parametrize("draw", range(4))
def test_a_single_number_changes_kind_with_the_draw(draw):
    moved = as_trained({"a": torch.tensor([0.25])}, traits("a"), draw)["a"].item()
    assert (moved < 0) == (draw in (0, 2))
    assert (abs(moved) >= 1) == (draw in (1, 2))


def with_gradient(name):
    return traits()._replace(parameters=(TensorInfo(name=name, requires_grad=True),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_zeros_among_other_values_move_in_every_other_draw(dtype):
    table = torch.randn(8, 4).to(dtype)
    table[3] = 0
    first, second, third = (as_trained({"w": table}, with_gradient("w"), draw)["w"] for draw in range(3))
    assert first[3].all()
    assert torch.equal(first[:3], table[:3])
    assert not second[3].any()
    assert third[3].all()


def test_zeros_of_an_identity_become_small():
    moved = as_trained({"w": torch.eye(64)}, with_gradient("w"))["w"]
    assert moved.all()
    assert moved.norm() < 2 * torch.eye(64).norm()


def test_zeros_of_a_parameter_that_is_not_trained_stay():
    table = torch.tensor([1.0, 0.0, -2.0])
    assert torch.equal(as_trained({"w": table}, traits("w"))["w"], table)


def test_a_matrix_of_constants_keeps_its_size():
    moved = as_trained({"w": torch.full((64, 64), 0.02)}, traits("w"))["w"]
    assert moved.abs().max() <= 0.04


def test_statistics_keep_their_sign_and_become_small_somewhere():
    moved = as_trained({"var": torch.ones(8), "count": torch.tensor(3)}, traits("w"))
    assert (moved["var"] > 0).all()
    assert moved["var"].min() < 0.03
    assert moved["var"].max() >= 1
    assert moved["count"] == 3


def test_tables_and_values_of_both_signs_stay_in_the_first_draw():
    state = {"table": torch.full((4,), 2.0), "w": torch.linspace(-1, 2, 16), "v": torch.rand(16)}
    first = as_trained(state, traits("w", tables=["table"]))
    later = as_trained(state, traits("w", tables=["table"]), 1)
    assert torch.equal(first["table"], state["table"])
    assert torch.equal(first["w"], state["w"])
    assert torch.equal(first["v"], state["v"]), "a buffer, such as a variance"
    assert torch.equal(later["table"], state["table"])
    assert not torch.equal(later["w"], state["w"])


@pytest.mark.parametrize("draw", [0, 1])
def test_parameters_of_one_sign_get_both_signs(draw):
    moved = as_trained({"w": torch.rand(64)}, traits("w"), draw)["w"]
    assert (moved < 0).any()
    assert (moved > 0).any()


def rectified(state):
    y = torch.relu(torch.linspace(-1, 1, 64) * state["w"]) / state["v"].sqrt()
    return [{"output": y * state["power"].log()}]


def test_a_parameter_that_must_be_positive_alone_keeps_its_sign():
    state = {"w": torch.ones(64), "v": torch.ones(64), "power": torch.tensor([2.0])}
    limited, moved, (outputs,) = first_training(state, traits("w", "v", "power"), rectified)
    assert (moved["w"] < 0).any()
    assert (moved["v"] > 0).all()
    assert moved["power"] > 0
    assert outputs["output"].isfinite().all()
    assert limited.limits == {"w": "signed", "v": "spread", "power": "spread"}
    for draw in range(4):
        assert rectified(as_trained(state, limited, draw))[0]["output"].isfinite().all()


def test_outputs_that_become_constant_count_as_lost():
    def clipped(state):
        return [{"output": torch.linspace(-1, 1, 8).clamp(0, max(state["top"].item(), 0.0))}]

    limited, moved, _ = first_training({"top": torch.tensor(6.0)}, traits("top"), clipped)
    assert moved["top"] > 0
    assert limited.limits == {"top": "spread"}


def test_a_reference_that_refuses_a_value_gets_one_near_the_constructors():
    def narrow(state):
        if not 0.5 < state["a"].item() < 1.6:
            raise ReferenceRefused("out of range")
        return [{"output": torch.linspace(0, 1, 8) * state["a"]}]

    limited, moved, _ = first_training({"a": torch.tensor(1.0), "b": torch.zeros(3)}, traits("a"), narrow)
    assert 0.5 < moved["a"] < 1.6
    assert limited.limits["b"] == "near"


def test_signs_are_put_back():
    before = {"w": torch.tensor([1.0, 1.0, 0.0]), "v": torch.tensor([1.0])}
    moved = {"w": torch.tensor([-2.0, 3.0, -1.0]), "v": torch.tensor([-1.0])}
    assert positive(moved, before, frozenset(["w"]))["w"].tolist() == [2.0, 3.0, -1.0]
    assert positive(moved, before, frozenset(["w"]))["v"].tolist() == [-1.0]


def test_zeros_by_chance_stay_and_gigabytes_are_not_copied_for_them():
    weight = torch.full((1 << 22,), 0.5)
    weight[7] = 0
    assert _filled(weight, 1.0) is weight
    weight[:64] = 0
    filled = _filled(weight, 1.0)
    assert bool((filled == 0.5).all())
