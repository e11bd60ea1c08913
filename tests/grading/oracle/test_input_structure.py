"""What all draws of an input have in common stays where a probe changes elements."""

import pytest
import torch

from grader.grading.oracle.input_structure import EDITS, Structure


def triangular():
    return torch.triu(torch.randn(2, 7, 7))


def symmetric():
    value = torch.randn(2, 7, 7)
    return value + value.mT


def banded():
    return torch.randn(9, 9).triu(-1).tril(1)


@pytest.mark.parametrize("draw", [triangular, banded])
def test_zeros_of_every_draw_stay(draw):
    structure = Structure([draw() for _ in range(3)])
    value = draw()
    for _ in range(20):
        other = structure.edited(value)
        assert torch.equal(other == 0, value == 0)
        assert 1 <= (other != value).sum() <= EDITS


def test_an_elements_mirror_image_changes_with_it():
    structure = Structure([symmetric() for _ in range(3)])
    for _ in range(20):
        value = symmetric()
        other = structure.edited(value)
        assert torch.equal(other, other.mT)
        assert 1 <= (other != value).sum() <= 2 * EDITS


def test_the_slope_of_an_element_is_that_of_all_that_goes_with_it():
    structure = Structure([symmetric() for _ in range(3)])
    value, weight = symmetric().double(), torch.randn(2, 7, 7, dtype=torch.float64)
    slopes = structure.slopes(weight)
    for where in map(structure.place, range(structure.count)):
        before = value.reshape(-1)[where].item()
        moved = structure.changed(value, {where: before + 1})
        assert float(((moved - value) * weight).sum()) == pytest.approx(float(slopes[where]))
    assert slopes.count_nonzero() == 2 * 28


def test_what_may_not_change_has_no_slope_even_where_its_gradient_is_no_number():
    structure = Structure([triangular() for _ in range(3)])
    slopes = structure.slopes(torch.full((2, 7, 7), torch.nan))
    assert torch.equal(slopes != 0, triangular().flatten() != 0)


@pytest.mark.parametrize("shape", [(4, 6), (6,)])
def test_rows_of_probabilities_sum_to_one(shape):
    structure = Structure([torch.randn(shape).softmax(-1) for _ in range(3)])
    value = torch.randn(shape).softmax(-1)
    for _ in range(20):
        other = structure.edited(value)
        torch.testing.assert_close(other.sum(-1), value.sum(-1))
        assert torch.equal(other.flatten().sort().values, value.flatten().sort().values)
    assert not Structure([torch.rand(shape) for _ in range(3)]).sums_alike


def test_one_hot_rows_stay_so():
    def draw():
        return torch.nn.functional.one_hot(torch.randint(6, (8,)), 6).float()

    structure, value = Structure([draw() for _ in range(3)]), draw()
    for _ in range(20):
        other = structure.edited(value)
        assert torch.equal(other.sum(-1), torch.ones(8))
        assert set(other.flatten().tolist()) == {0.0, 1.0}


def test_what_is_the_same_everywhere_changes_all_the_same():
    alike = torch.full((5, 6), 0.5)
    assert (Structure([alike] * 3).edited(alike) != alike).any()


def test_new_values_are_others_of_the_tensors_own():
    structure = Structure([torch.rand(5, 6) for _ in range(3)])
    value = torch.rand(5, 6)
    other = structure.edited(value)
    assert set(other.flatten().tolist()) <= set(value.flatten().tolist())
    assert 1 <= (other != value).sum() <= EDITS
    alike = torch.full((5, 6), 2.0)
    assert set(Structure([alike] * 3).edited(alike).flatten().tolist()) <= {2.0, -5.0, 9.0}


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.randn(7, 7),
        lambda: torch.randn(7, 7).relu(),
        lambda: torch.ones(7, 7).tril(),
        lambda: torch.zeros(5, 7),
        lambda: torch.randint(0, 9, (7, 7)).triu(),
    ],
    ids=["any", "relu", "mask", "zeros", "integers"],
)
def test_otherwise_any_element_may_change(draw):
    assert Structure([draw() for _ in range(40)]).count == draw().numel()


@pytest.mark.parametrize(
    ("draw", "low", "high"),
    [
        (lambda: torch.rand(5, 6), 0, 1),
        (lambda: 3 * torch.rand(5, 6), 0, float("inf")),
        (lambda: torch.randn(50, 6), -float("inf"), float("inf")),
        (lambda: torch.rand(5, 6) - 2, -float("inf"), 0),
        (lambda: torch.rand(5, 6) * 2 - 1, -1, 1),
    ],
    ids=["unit", "nonnegative", "any", "negative", "cosine"],
)
def test_an_element_moves_within_the_range_of_all_draws(draw, low, high):
    structure = Structure([draw() for _ in range(3)])
    assert (structure.low, structure.high) == (low, high)
    for old in draw().flatten().tolist():
        for step in (-4.0, 4.0, 0.5):
            moved = structure.moved(old, step)
            assert low <= moved <= high
            assert abs(moved - old) > 0.1


@pytest.mark.parametrize(
    ("draw", "free"),
    [
        (lambda: torch.randint(1, 5, (6,)).cumsum(0), 0),
        (lambda: torch.randint(1, 5, (2, 6), dtype=torch.int32).cumsum(1), 0),
        (lambda: torch.tensor([0, 40]), 0),
        (lambda: torch.randperm(40)[:6], 6),
        (lambda: torch.full((6,), 3), 6),
        (lambda: torch.randn(6).sort().values, 6),
    ],
)
def test_starts_of_rows_stay(draw, free):
    structure = Structure([draw() for _ in range(3)])
    assert structure.count == free
    value = draw()
    assert free or torch.equal(structure.edited(value), value)
