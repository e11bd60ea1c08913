"""The quick comparison of timed calls says what the full one says."""

import math

import pytest
import torch

from grader.stages import numerics


def expected(golden):
    fields = {"name": "output", "golden": golden, "shape": tuple(golden.shape), "dtype": torch.float32}
    return numerics.Expected(**fields, error_l2=0.0, error_max=0.0, reduction_length=1)


@pytest.mark.parametrize("specials", [[], [math.nan], [math.inf, -math.inf, math.nan], [3e38]])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_distance_is_that_of_the_full_comparison(specials, size):
    golden = torch.cat([torch.randn(size), torch.tensor(specials)]).float()
    candidate = torch.cat([golden[:size] + 1e-3 * torch.randn(size), torch.tensor(specials)]).float()
    full = numerics.difference(candidate, expected(golden))
    assert numerics.distance(candidate, golden) == pytest.approx((full.l2, full.golden_l2), rel=1e-5)


@pytest.mark.parametrize(
    ("one", "other"), [(math.nan, 1.0), (1.0, math.inf), (math.inf, -math.inf), (math.nan, math.inf)]
)
def test_other_specials_have_no_distance(one, other):
    pair = torch.tensor([1.0, one]), torch.tensor([1.0, other])
    assert not numerics.difference(pair[0], expected(pair[1])).same_specials
    assert numerics.distance(*pair) is None


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e-8, 1.0, 1e10, 1e18, 1e30])
@pytest.mark.parametrize("error", [1e-7, 1e-3, 2.0])
def test_of_every_scale_five_digits_are_right(scale, error):
    torch.manual_seed(0)
    golden = scale * (torch.rand(3 << 20) + 0.5)
    candidate = golden * (1 + error * torch.randn(3 << 20))
    full = numerics.difference(candidate, expected(golden))
    assert numerics.distance(candidate, golden) == pytest.approx((full.l2, full.golden_l2), rel=1e-5)
