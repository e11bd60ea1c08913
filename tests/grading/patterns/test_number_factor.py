"""The factor of single numbers in several draws."""

from dataclasses import replace

import pytest
import torch

from grader.grading.compare.expected import Expected
from grader.grading.patterns.number_factor import agreed_factor

NUMBERS = (0.7312, -1.913, 0.2471)


def measured(wrong, dtype, numbers=NUMBERS):
    for number in numbers:
        right = torch.tensor([number], dtype=torch.float64)
        expected = Expected(name="loss", shape=(1,), reference64=right, dtype=dtype, reduction_length=64.0)
        yield torch.tensor([wrong(number)], dtype=dtype), expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("factor", [2, -1, 1 / 16, 1.5, 0.3, 100.0])
def test_a_factor_is_named_as_far_as_rounding_allows(dtype, factor):
    """Whole numbers and their inverses are named exactly."""
    assert agreed_factor(measured(lambda right: factor * right, dtype)) == pytest.approx(factor, rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "wrong", [lambda right: right + 0.5, lambda right: right**2, lambda right: 0.5, lambda right: right]
)
def test_what_is_no_multiple_has_no_factor(dtype, wrong):
    """A term, another function, a constant or the right number."""
    assert agreed_factor(measured(wrong, dtype)) is None


def test_numbers_that_hardly_vary_show_no_factor():
    """A term too many would be as good an explanation."""
    assert agreed_factor(measured(lambda right: 2 * right, torch.bfloat16, (0.731, 0.732, 0.733))) is None


def test_a_small_number_may_be_off_by_the_rounding_of_a_large_one():
    """Numbers of a bfloat16 grading: the terms of the first one cancel."""
    draws = [
        (torch.tensor([ours], dtype=torch.bfloat16), replace(expected, error_l2=error))
        for (_, expected), ours, error in zip(
            measured(float, torch.bfloat16, (0.20623, 1.81885, 2.36082)),
            (0.404297, 3.640625, 4.75),
            (0.0011, 0.0007, 0.007),
            strict=True,
        )
    ]
    assert agreed_factor(draws) == 2
