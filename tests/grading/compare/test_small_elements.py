"""Elements far below a tensor's size are judged by their own size."""

import pytest
import torch

from grader.grading.compare import small_elements

SIZES = torch.logspace(0, -20, 800, dtype=torch.float64)


def wrong(candidate, sizes=SIZES, spread=1e-6):
    return small_elements.wrong(candidate, sizes, lambda: spread * sizes, small=1e-6, share=1e-3)


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.01, 2.0])
def test_an_error_of_their_own_size_is_told(factor):
    candidate = torch.where((SIZES < 1e-9) & (SIZES > 1e-12), factor * SIZES, SIZES)
    assert "in its elements from 1e-10 to 1e-09, far below" in wrong(candidate)


def test_a_single_element_shows_beside_others_of_its_size():
    candidate = SIZES.clone()
    candidate[500] *= 2
    assert wrong(candidate) is not None


def test_rounding_is_none():
    assert wrong(SIZES * (1 + 1e-4 * torch.randn(800))) is None


def test_what_the_reference_itself_loses_is_none():
    candidate = torch.where(SIZES < 1e-9, 0.0, SIZES)
    assert wrong(candidate, spread=1.0) is None


@pytest.mark.parametrize(
    ("sizes", "share"),
    [
        (SIZES, 1e-3),
        (torch.cat([SIZES, torch.ones(800)]), 0.5),
        (torch.cat([SIZES, torch.ones(500_000)]), 0.5),
        (torch.cat([SIZES, torch.ones(600_000)]), None),
        (SIZES[-63:], None),
    ],
)
def test_half_of_a_few_small_ones_has_to_be_right(sizes, share):
    assert small_elements.tolerated(sizes, 1e-6, 1e-3) == share


def test_nothing_is_asked_below_the_range_of_float32():
    sizes = torch.logspace(0, -60, 800, dtype=torch.float64)
    assert wrong(torch.where(sizes < 1e-31, 0.0, sizes), sizes) is None


def test_elements_are_judged_down_to_the_noise():
    def least(noise):
        return small_elements.least_judged(SIZES, lambda: torch.full_like(SIZES, noise), small=1e-6)

    assert least(1e-13) == 1e-12
    assert least(1e-40) == 1e-20
    assert least(1e-6) is None
    candidate = torch.where(SIZES < 1e-12, 0.0, SIZES)
    zeros = torch.zeros_like
    assert small_elements.wrong(candidate, SIZES, lambda: zeros(SIZES), small=1e-6, share=0.5, least=1e-12) is None
    assert small_elements.wrong(candidate, SIZES, lambda: zeros(SIZES), small=1e-6, share=0.5) is not None


def test_elements_below_the_noise_of_float32_may_be_anything():
    """A gradient that is 0 but for rounding: the float64 reference has 1e-17, float32 has 1e-7 in every algorithm."""
    noise = torch.full((96,), 1e-17, dtype=torch.float64)
    assert small_elements.wrong(noise + 5e-7, noise, lambda: 0 * noise + 1e-7, small=1e-4, share=1e-3) is None
