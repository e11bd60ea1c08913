"""Which differences between the runs of two sides no exchange of runs explains."""

import pytest
import torch

from grader.grading.random.exchange import Variation, differences

RUNS = 384


def residuals(keep):
    """Bounded residuals of a dropout with p = 0.2, by which elements are kept."""
    residual = torch.where(keep, 0.5, -2.0).double()
    return Variation.of(residual / (1 + residual.square()).sqrt())


def draw(*shape):
    return torch.rand(RUNS, *shape) >= 0.2


def row_kept():
    mask = draw(24, 16)
    mask[:, -1] = True
    return mask


def antidiagonal():
    return draw(24 + 16)[:, torch.arange(24)[:, None] + torch.arange(16)]


def antithetic():
    half = torch.rand(RUNS, 12, 16)
    return torch.cat((half, 1 - half), 1) >= 0.2


def symmetric():
    mask = torch.rand(RUNS, 16, 16).tril()
    return mask + mask.tril(-1).mT >= 0.2


SHAPES = {
    "elements": lambda: draw(24, 16),
    "rows": lambda: draw(24, 1).expand(-1, -1, 16),
    "channels": lambda: draw(2, 6, 1, 1).expand(-1, -1, -1, 5, 5),
    "all": lambda: draw(1, 1).expand(-1, 6, 4),
    "one": lambda: draw(1),
    "many": lambda: draw(300, 20),
}


@pytest.mark.parametrize("mask", SHAPES.values(), ids=SHAPES)
def test_no_figure_of_equal_distributions_differs_three_times(mask):
    turns = [set(differences(residuals(mask()), residuals(mask()), 256, 0.01)) for _ in range(3)]
    assert set.intersection(*turns) == set()


@pytest.mark.parametrize(
    ("mask", "shape", "figure"),
    [
        (row_kept, (24, 16), "index of dimension 0"),
        (antidiagonal, (24, 16), "covariances along dimensions 0, 1"),
        (antidiagonal, (24, 16), "elements apart along [0, 1]"),
        (antithetic, (24, 16), "covariances along dimension 0"),
        (antithetic, (24, 16), "elements apart along [0]"),
        (symmetric, (16, 16), "covariances along dimensions 0, 1"),
        (SHAPES["rows"], (24, 16), "covariances along dimension 1"),
    ],
)
def test_masks_with_other_variances_or_covariances_differ(mask, shape, figure):
    assert figure in differences(residuals(mask()), residuals(draw(*shape)), 256, 0.01)


def test_worst_index_is_named():
    what, _ = differences(residuals(row_kept()), residuals(draw(24, 16)), 256, 0.01)["index of dimension 0"]
    assert what.startswith("index 23 of dimension 0 varies by 0.2, where the reference's varies by 0.3")


def test_index_that_differs_most_comes_first():
    mask = row_kept().mT
    mask[:, 3] |= torch.rand(RUNS, 24) >= 0.5
    found = differences(residuals(mask), residuals(draw(16, 24)), 256, 0.01)
    assert list(found)[:2] == ["index of dimension 1", "index of dimension 0"]


def test_distance_of_elements_that_share_numbers_is_named():
    what, _ = differences(residuals(antithetic()), residuals(draw(24, 16)), 256, 0.01)["elements apart along [0]"]
    assert what.startswith("elements 12 apart along dimension 0 have a mean square correlation of 0.")
