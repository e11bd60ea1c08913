"""The fast comparison of timed calls agrees with the full comparison."""

import math

import pytest
import torch

from grader.grading.compare import blocks, tolerance


def expected(reference64):
    fields = {"name": "output", "reference64": reference64, "shape": tuple(reference64.shape), "dtype": torch.float32}
    return tolerance.Expected(**fields, error_l2=0.0, error_max=0.0, reduction_length=1)


@pytest.mark.parametrize("specials", [[], [math.nan], [math.inf, -math.inf, math.nan], [3e38]])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_distance_is_that_of_the_full_comparison(specials, size):
    reference64 = torch.cat([torch.randn(size), torch.tensor(specials)]).float()
    candidate = torch.cat([reference64[:size] + 1e-3 * torch.randn(size), torch.tensor(specials)]).float()
    full = tolerance.difference(candidate, expected(reference64))
    assert blocks.distance(candidate, reference64) == pytest.approx((full.l2, full.reference_l2), rel=1e-5)


@pytest.mark.parametrize(
    ("one", "other"), [(math.nan, 1.0), (1.0, math.inf), (math.inf, -math.inf), (math.nan, math.inf)]
)
def test_distance_is_none_for_other_specials(one, other):
    pair = torch.tensor([1.0, one]), torch.tensor([1.0, other])
    assert not tolerance.difference(pair[0], expected(pair[1])).same_specials
    assert blocks.distance(*pair) is None


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e-8, 1.0, 1e10, 1e18, 1e30])
@pytest.mark.parametrize("error", [1e-7, 1e-3, 2.0])
def test_five_digits_are_right_at_every_scale(scale, error):
    torch.manual_seed(0)
    reference64 = scale * (torch.rand(3 << 20) + 0.5)
    candidate = reference64 * (1 + error * torch.randn(3 << 20))
    full = tolerance.difference(candidate, expected(reference64))
    assert blocks.distance(candidate, reference64) == pytest.approx((full.l2, full.reference_l2), rel=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("specials", [[], [math.nan], [math.inf, -math.inf, math.nan]])
def test_specials_do_not_change_the_figures_of_other_elements(monkeypatch, scale, specials):
    """With blocks of a hundred elements, most blocks contain no specials."""
    monkeypatch.setattr(blocks, "CHUNK_ELEMENTS", 100)
    torch.manual_seed(0)
    reference64 = scale * torch.randn(1000, dtype=torch.float64)
    candidate = (reference64 + 1e-6 * scale * torch.randn(1000)).float()
    alone = tolerance.difference(candidate, expected(reference64))
    more = torch.tensor(specials)
    both = tolerance.difference(torch.cat([candidate, more]), expected(torch.cat([reference64, more.double()])))
    assert alone.same_specials
    assert both.same_specials
    assert both.worst_index == alone.worst_index
    of_both, of_one = ([d.l2, d.max, d.reference_l2, d.worst_candidate, d.worst_reference] for d in (both, alone))
    assert of_both == of_one
    assert both.excess == pytest.approx(alone.excess, rel=0.01), "its bound has the mean square over a few more"
    assert (both.passes_1e_4, both.passes_1e_2) == (alone.passes_1e_4, alone.passes_1e_2)


@pytest.mark.parametrize("place", [0, 150, 999])
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_one_special_among_finite_elements_is_seen_anywhere(monkeypatch, place, special):
    monkeypatch.setattr(blocks, "CHUNK_ELEMENTS", 100)
    reference64 = torch.randn(1000)
    candidate = reference64.clone()
    candidate[place] = special
    assert not tolerance.difference(candidate, expected(reference64)).same_specials
    assert not tolerance.difference(reference64, expected(candidate)).same_specials
