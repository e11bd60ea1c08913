"""The fast comparison of timed calls agrees with the full comparison."""

import math

import pytest
import torch

from grader.grading.compare import blocks, error_sizes, together, tolerance
from grader.grading.compare.expected import Expected


def expected(reference64):
    fields = {"name": "output", "reference64": reference64, "shape": tuple(reference64.shape), "dtype": torch.float32}
    return Expected(**fields, error_l2=0.0, error_max=0.0, reduction_length=1)


def distance(candidate, reference64):
    return error_sizes.distances([candidate], [reference64])[0]


def difference(candidate, reference64):
    return tolerance.differences([(expected(reference64), candidate)])[0]


@pytest.mark.parametrize("specials", [[], [math.nan], [math.inf, -math.inf, math.nan], [3e38]])
@pytest.mark.parametrize("size", [0, 1, 1000])
def test_distance_is_that_of_the_full_comparison(specials, size):
    reference64 = torch.cat([torch.randn(size), torch.tensor(specials)]).float()
    candidate = torch.cat([reference64[:size] + 1e-3 * torch.randn(size), torch.tensor(specials)]).float()
    full = difference(candidate, reference64)
    assert distance(candidate, reference64) == pytest.approx((full.l2, full.reference_l2), rel=1e-5)


@pytest.mark.parametrize(
    ("one", "other"), [(math.nan, 1.0), (1.0, math.inf), (math.inf, -math.inf), (math.nan, math.inf)]
)
def test_distance_is_none_for_other_specials(one, other):
    pair = torch.tensor([1.0, one]), torch.tensor([1.0, other])
    assert not difference(pair[0], pair[1]).same_specials
    assert distance(*pair) is None


@pytest.mark.parametrize("scale", [1e-30, 1e-15, 1e-8, 1.0, 1e10, 1e18, 1e30])
@pytest.mark.parametrize("error", [1e-7, 1e-3, 2.0])
def test_five_digits_are_right_at_every_scale(scale, error):
    torch.manual_seed(0)
    reference64 = scale * (torch.rand(3 << 20) + 0.5)
    candidate = reference64 * (1 + error * torch.randn(3 << 20))
    full = difference(candidate, reference64)
    assert distance(candidate, reference64) == pytest.approx((full.l2, full.reference_l2), rel=1e-5)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("scale", blocks.NARROW_RMS)
@pytest.mark.parametrize("error", [1e-8, 1e-3])
def test_sums_in_float32_have_five_digits_at_the_ends_of_their_range(device, scale, error):
    torch.manual_seed(0)
    reference64 = scale * (torch.rand(1 << 20, device=device, dtype=torch.float64) + 0.6)
    candidate = (reference64 * (1 + error * torch.randn(1 << 20, device=device))).float()
    reference64 = reference64.float()
    exact = [float(one.double().norm()) for one in (candidate.double() - reference64.double(), reference64)]
    assert distance(candidate, reference64) == pytest.approx(exact, rel=1e-5)


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("specials", [[], [math.nan], [math.inf, -math.inf, math.nan]])
def test_specials_do_not_change_the_figures_of_other_elements(monkeypatch, scale, specials):
    """With blocks of a hundred elements, most blocks contain no specials."""
    for module in (blocks, error_sizes):
        monkeypatch.setattr(module, "chunk", lambda device: 100)
    torch.manual_seed(0)
    reference64 = scale * torch.randn(1000, dtype=torch.float64)
    candidate = (reference64 + 1e-6 * scale * torch.randn(1000)).float()
    alone = difference(candidate, reference64)
    more = torch.tensor(specials)
    both = difference(torch.cat([candidate, more]), torch.cat([reference64, more.double()]))
    assert alone.same_specials
    assert both.same_specials
    assert both.worst_at == alone.worst_at
    of_both, of_one = ([d.l2, d.worst, d.reference_l2, d.worst_candidate, d.worst_reference] for d in (both, alone))
    assert of_both == of_one
    assert both.bound_ratio == pytest.approx(alone.bound_ratio, rel=0.01), "its bound has the mean square of more"
    assert all(both.within_plain(plain) == alone.within_plain(plain) for plain in (1e-4, 1e-2))


@pytest.mark.parametrize("place", [0, 150, 999])
@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_one_special_among_finite_elements_is_seen_anywhere(monkeypatch, place, special):
    for module in (blocks, error_sizes):
        monkeypatch.setattr(module, "chunk", lambda device: 100)
    reference64 = torch.randn(1000)
    candidate = reference64.clone()
    candidate[place] = special
    assert not difference(candidate, reference64).same_specials
    assert not difference(reference64, candidate).same_specials


def many(dtype=torch.float32):
    """Pairs of (expected, candidate) as a network has: of many sizes, right, wrong, equal, and with specials."""
    torch.manual_seed(0)
    for number, shape in enumerate(
        [(3,), (64, 3, 3), (1,), (), (0,), (17, 5), (128,), (40, 40), (9,), (5, 5), (2,)] * 3
    ):
        reference64 = torch.randn(shape, dtype=torch.float64) * 10.0 ** (number % 5 - 2)
        candidate = (reference64 + 1e-6 * torch.randn(shape) * (number % 4)).to(dtype)
        reference64 = reference64 if number % 4 else candidate.double()
        if number % 6 == 5 and candidate.numel() > 1:
            candidate.view(-1)[1] = [math.nan, math.inf, -math.inf][number % 3]
            if number % 12 == 5:
                reference64.view(-1)[1] = candidate.view(-1)[1]
        fields = {"name": f"p{number}", "reference64": reference64, "shape": tuple(shape), "dtype": dtype}
        yield Expected(**fields, error_l2=1e-7 * number, error_max=1e-8, reduction_length=number + 1), candidate


@pytest.mark.parametrize("chunk", [100, 1 << 22])
@pytest.mark.parametrize("host", [0, 1 << 14])
def test_many_tensors_together_are_judged_as_each_alone(monkeypatch, chunk, host):
    monkeypatch.setattr(together, "chunk", lambda device: chunk)
    monkeypatch.setattr(blocks, "HOST_ELEMENTS", host)
    narrow = [*many(torch.bfloat16)]
    whole = torch.arange(5), torch.tensor([0, 1, 2, 4, 4])
    integers = Expected("indices", (5,), torch.int64, whole[0]), whole[1]
    pairs = [*many(), integers, *narrow, *many()]
    one_by_one = [tolerance.check(*pair) for pair in many()]
    one_by_one += [tolerance.check(*pair) for pair in (integers, *narrow)] + one_by_one
    joint = [*tolerance.check_each(pairs)]
    assert len({check.status for check in joint}) == 2
    for one, other in zip(joint, one_by_one, strict=True):
        figures = ("max_abs_error", "rel_rms_error", "baseline_rel_rms_error", "worst_candidate", "worst_reference")
        assert [getattr(one, name) for name in figures] == pytest.approx([getattr(other, name) for name in figures])
        skipped = {*figures, "message"}
        assert one.model_dump(exclude=skipped) == other.model_dump(exclude=skipped)


def test_norms_errors_and_distances_of_many_are_those_of_each():
    pairs = [(expected.reference64, candidate) for expected, candidate in many()]
    exact, runs = [one for one, _ in pairs], [other for _, other in pairs]
    assert blocks.norms_each(exact) == pytest.approx([blocks.norm(one) for one in exact])
    assert blocks.are_finite(runs) == [bool(run.isfinite().all()) for run in runs]
    errors = [blocks.baseline_errors([run], [one])[0] for one, run in pairs]
    assert blocks.baseline_errors(runs, exact) == [pytest.approx(error) for error in errors]
    rounded = [one.float() for one in exact]
    far = [distance(run, one) for run, one in zip(runs, rounded, strict=True)]
    assert None in far
    near = [None if one is None else pytest.approx(one, rel=1e-5, abs=1e-12) for one in far]
    assert error_sizes.distances(runs, rounded) == near


def test_distances_of_tensors_together_are_right_to_five_digits():
    """A CPU sums millions of squares in float32 to four."""
    torch.manual_seed(0)
    references = [torch.rand(1_900_000) + 0.5 for _ in range(2)]
    candidates = [one * (1 + 1e-3 * torch.randn(len(one))) for one in references]
    exact = [
        (float((c.double() - g).norm()), float(g.double().norm())) for c, g in zip(candidates, references, strict=True)
    ]
    assert error_sizes.distances(candidates, references) == [pytest.approx(one, rel=1e-5) for one in exact]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e-12, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("error", [0.0, 1e-8, 1e-6, 2e-5, 1e-3, 0.1])
def test_bounds_of_elements_are_asked_wherever_one_may_be_exceeded(dtype, size, error):
    torch.manual_seed(0)
    reference64 = (size * torch.randn(4000, dtype=torch.float64)).to(dtype)
    candidate = reference64.float() * (1 + error * torch.randn(4000))
    (found,) = error_sizes.error_sizes([error_sizes.Compared(candidate, reference64, 1e-5 * size, 1e-5)], 1e-4)
    off = (candidate.double() - reference64).abs()
    ratio, mixed = off / (1e-5 * size + 1e-5 * reference64.abs()), off / (1 + reference64.abs())
    assert (found.bound_ratio <= 1) == (ratio.max() <= 1)
    assert found.bound_ratio in (0, pytest.approx(float(ratio.max()), rel=1e-4))
    for plain in (1e-4, 1e-2):
        assert (found.mixed_relative <= plain) == (mixed.max() <= plain)
    assert (found.worst, found.l2) == pytest.approx((float(off.max()), float(off.norm())), rel=1e-5)


@pytest.mark.gpu
def test_a_last_block_of_few_elements_is_compared_where_the_others_are(monkeypatch):
    for module in (blocks, error_sizes):
        monkeypatch.setattr(module, "chunk", lambda device: 1 << 15)
    reference64 = torch.randn((1 << 16) + 3, device="cuda")
    candidate = reference64.clone()
    candidate[-1] += 1
    found = difference(candidate, reference64)
    assert found.worst_at == (1 << 16) + 2
    assert found.l2 == pytest.approx(1, rel=1e-3)
    assert blocks.norm(reference64) == pytest.approx(float(reference64.norm()), rel=1e-5)
