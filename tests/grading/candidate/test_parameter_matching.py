"""Which of a candidate's tensors holds which of the reference's: by name, by value, by order; and how it holds it."""

import itertools

import pytest
import torch

from grader.grading.candidate.candidate import info_of
from grader.grading.candidate.parameter_matching import match
from grader.grading.candidate.placement import EqualValues, order_of

REFERENCE = {
    "q.weight": torch.randn(3, 4),
    "q.bias": torch.zeros(3),
    "k.weight": torch.randn(3, 4),
    "k.bias": torch.zeros(3),
    "conv.weight": torch.randn(5, 3, 2, 2),
}


def infos(tensors):
    return [info_of(name, value) for name, value in tensors.items()]


def matched(ours, theirs, *, equal_seeds=True, doubted=False):
    values = [EqualValues(ours, theirs)] if equal_seeds else []
    return match(infos(ours), infos(theirs), values, doubted=doubted)


def check_values(ours, theirs, matching):
    """The candidate's tensors are made of the reference's, and each of these is found in them again."""
    held = matching.values(ours)
    assert {name: value.flatten().tolist() for name, value in held.items()} == {
        name: theirs[name].flatten().tolist() for name in held
    }
    for name, place in matching.places.items():
        assert torch.equal(place.take(held[place.name].view(place.shape)), ours[name])


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_every_order_of_dimensions_is_found(order):
    value = torch.randn(2, 3, 1, 4)
    assert order_of(value, value.permute(order).reshape(6, 4)) is not None
    assert order_of(value, value.permute(order).flip(0).reshape(6, 4) + 1) is None


def test_values_in_another_layout_are_found():
    theirs = {
        "both": torch.stack([REFERENCE["q.weight"].t(), REFERENCE["k.weight"].t()], 1),
        "biases": torch.zeros(2, 3),
        "filters": REFERENCE["conv.weight"].permute(1, 2, 3, 0).reshape(12, 5),
    }
    matching = matched(REFERENCE, theirs)
    assert (matching.missing, matching.extra, matching.guessed) == ((), (), ())
    check_values(REFERENCE, theirs, matching)


def test_values_of_one_part_name_the_whole_tensor():
    """A buffer that shares its tensor with a parameter is set together with it."""
    theirs = {"all": torch.cat([REFERENCE["q.weight"], REFERENCE["k.weight"]])}
    ours = {name: REFERENCE[name] for name in ("q.weight", "k.weight")}
    held = matched(ours, theirs).values(ours, only=["k.weight"])
    assert torch.equal(held["all"], theirs["all"])


def test_constants_follow_their_module():
    theirs = {
        "second.bias": torch.zeros(3),
        "second.weight": REFERENCE["q.weight"],
        "first.weight": REFERENCE["k.weight"],
        "first.bias": torch.zeros(3),
        "conv.weight": REFERENCE["conv.weight"],
    }
    matching = matched(REFERENCE, theirs)
    assert matching.places["q.bias"].name == "second.bias"
    assert matching.guessed == ()


def test_constants_of_one_shape_are_told_apart_by_their_element():
    ours = {"norm.weight": torch.ones(4), "norm.bias": torch.zeros(4)}
    theirs = {"beta": torch.zeros(4), "gamma": torch.ones(4)}
    assert matched(ours, theirs).places["norm.weight"].name == "gamma"
    by_order = matched(ours, theirs, equal_seeds=False)
    assert by_order.places["norm.weight"].name == "beta"
    assert by_order.guessed == ("norm.weight", "norm.bias")


def test_names_come_before_values_unless_they_are_doubted():
    ours = {"a": torch.randn(3, 3), "b": torch.randn(3, 3)}
    theirs = {"a": ours["b"], "b": ours["a"].t()}
    assert matched(ours, theirs).places["a"].name == "a"
    check_values(ours, theirs, matched(ours, theirs, doubted=True))


def test_equal_tensors_are_paired_by_name_then_by_order():
    same = torch.randn(3, 3)
    ours = {"a": same, "b": same, "c": same}
    theirs = {"x": same, "b": same, "y": same}
    places = matched(ours, theirs, doubted=True).places
    assert [places[name].name for name in "abc"] == ["x", "b", "y"]


def test_what_has_no_counterpart_is_named():
    ours = {"weight": torch.randn(3, 4), "bias": torch.randn(3)}
    matching = matched(ours, {"weights": torch.randn(4, 3), "bias": ours["bias"]})
    assert (matching.missing, matching.extra) == (("weight",), ("weights",))
    assert matching.unsure


def test_a_tensor_that_is_kept_in_parts_is_named_with_them():
    packed, bias = torch.randn(6, 4), torch.randn(6)
    theirs = {"v": packed[4:], "q": packed[:2], "k": packed[2:4], "bias": bias, "other": torch.randn(2, 4)}
    matching = matched({"in_proj": packed, "bias": bias}, theirs)
    assert matching.in_parts == {"in_proj": ("q", "k", "v")}
    assert matching.missing == ("in_proj",)
    assert not matched({"in_proj": packed}, {"q": packed[:2], "k": packed[2:4]}).in_parts
