"""What all draws of an input have in common stays where a probe changes elements."""

import pytest
import torch

from grader.stages.structure import EDITS, Structure


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
    for where in structure.free.flatten().nonzero().flatten().tolist():
        before = value.reshape(-1)[where].item()
        moved = structure.changed(value, {where: before + 1})
        assert float(((moved - value) * weight).sum()) == pytest.approx(float(slopes[where]))
    assert slopes.count_nonzero() == 2 * 28


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
    assert Structure([draw() for _ in range(40)]).free.all()
