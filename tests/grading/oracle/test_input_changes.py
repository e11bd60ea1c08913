"""Changed inputs keep what all draws share."""

import pytest
import torch

from grader.grading.oracle.code_changes import UNLIKE_EVERY_DRAW
from grader.grading.oracle.input_changes import (
    CHANGES,
    CODE_CHANGES,
    NEAR_RANGE,
    PAIRED,
    SCALED_DOWN,
    SCALED_FAR,
    SHIFTED_FAR,
    SIGNED,
    SIGNED_UP,
    SMALLER,
    SOME_ZEROS,
    ZERO_SAMPLE,
    over_pairs,
)
from grader.grading.oracle.input_changes import changed as changed_by
from grader.grading.oracle.input_structure import Structure

DRAWS = {
    "normal": lambda: torch.randn(60, 8),
    "nonnegative": lambda: torch.randn(6, 8).abs(),
    "unit": lambda: torch.rand(6, 8),
    "triangular": lambda: torch.randn(7, 7).tril(),
    "symmetric": lambda: (lambda a: a + a.mT)(torch.randn(7, 7)),
    "probabilities": lambda: torch.randn(6, 8).softmax(-1),
    "codes": lambda: torch.randint(0, 9, (6, 8)).float(),
    "mask": lambda: (torch.rand(6, 8) < 0.5).float(),
}


def changed(draw, **how):
    """The value, and what each change makes of it, by name."""
    draws = [draw() for _ in range(3)]
    value, structure = draws[0], Structure(draws)
    how = {"bounded": False} | how
    return value, {name: changed_by(name, structure, value, **how) for name in CHANGES}


def test_a_value_without_structure_is_changed_by_all():
    value, others = changed(DRAWS["normal"])
    assert {name for name, other in others.items() if torch.equal(other, value)} == {SIGNED, SIGNED_UP, SOME_ZEROS}
    scaled_up = others["inputs scaled up to 200"]
    assert min(float(scaled_up.max()), -float(scaled_up.min())) == pytest.approx(200, rel=1e-6)
    assert others[NEAR_RANGE].abs().max() > 1e30
    rows = others["inputs skewed, so that each row is close to the first one"]
    assert (rows - rows[0]).norm() < 0.2 * (value - value[0]).norm()


def test_sums_over_equal_neighbours_do_not_depend_on_which_of_equal_maxima_has_the_gradient():
    _, others = changed(lambda: torch.randn(3, 5, 7))
    paired = others[PAIRED]
    assert torch.equal(paired[:, 0], paired[:, 1])
    assert torch.equal(paired[:, :, 4], paired[:, :, 5])
    x = paired.requires_grad_()
    of_first, of_each = (torch.autograd.grad(y.sum(), x)[0] for y in (x.max(2).values.max(1).values, x.amax((1, 2))))
    assert not torch.equal(of_first, of_each)
    assert over_pairs(of_first).shape == (3, 3, 4)
    assert torch.equal(over_pairs(of_first), over_pairs(of_each))
    doubled = (x == x.amax((1, 2), keepdim=True)).float()
    assert over_pairs(doubled).sum() > over_pairs(of_each).sum()


@pytest.mark.parametrize("kind", ["nonnegative", "unit", "triangular", "symmetric"])
def test_three_changes_negate_what_is_never_negative(kind):
    value, others = changed(lambda: DRAWS[kind]().abs())
    signed = others.pop(SIGNED)
    dense = kind in ("nonnegative", "unit")
    mixed, drawn = (signed[::2], value[::2]) if dense else (signed, value)
    assert torch.equal(mixed.abs(), drawn)
    assert 0.5 * (drawn > 0).sum() < (mixed < 0).sum() < (drawn > 0).sum()
    assert not dense or signed[1::2].max() < -value.max()
    larger, far = others.pop(SIGNED_UP), others.pop(SHIFTED_FAR)
    assert torch.equal(larger, value) != dense
    assert not dense or larger.abs().max() >= 200 * (1 - 1e-6)
    assert far.min() < -100 * value.std()
    assert all((other >= 0).all() for other in others.values())
    _, others = changed(lambda: DRAWS[kind]().abs(), bounded=True)
    assert all((other >= 0).all() for other in others.values()), "an assertion of the device would end its process"


def test_samples_below_zero_move_above_it():
    value, others = changed(lambda: -DRAWS["nonnegative"]())
    assert others[SIGNED][1::2].min() > -value.min()


def test_samples_are_scaled_up_beside_others_that_are_not():
    value, others = changed(DRAWS["normal"])
    larger = others["inputs scaled up to 200"]
    assert torch.equal(larger[1::2], value[1::2])
    assert (larger[::2].abs() >= 8 * value[::2].abs()).all()


def test_zeros_and_symmetry_stay():
    assert all((other.triu(1) == 0).all() for other in changed(DRAWS["triangular"])[1].values())
    assert all(torch.equal(other, other.mT) for other in changed(DRAWS["symmetric"])[1].values())


@pytest.mark.parametrize("kind", ["codes", "mask"])
def test_codes_and_masks_are_left_alone(kind):
    value, others = changed(DRAWS[kind])
    assert all(torch.equal(other, value) for other in others.values())


def test_whole_numbers_that_are_differentiated_shrink():
    value, others = changed(DRAWS["codes"], scales_whole=True)
    assert {name for name, other in others.items() if not torch.equal(other, value)} == {SCALED_DOWN, SMALLER}
    assert float(others[SCALED_DOWN].square().mean().sqrt()) == pytest.approx(1e-3, rel=1e-5)
    value, others = changed(DRAWS["mask"], scales_whole=True)
    assert all(torch.equal(other, value) for other in others.values())


def test_probabilities_keep_their_sums():
    value, others = changed(DRAWS["probabilities"])
    assert {name for name, other in others.items() if not torch.equal(other, value)} == {SCALED_DOWN}
    torch.testing.assert_close(others[SCALED_DOWN].sum(-1), value.sum(-1))
    assert others[SCALED_DOWN].std(-1).max() < 1e-3


@pytest.mark.parametrize(
    ("draw", "zeros"),
    [
        (DRAWS["normal"], 8),
        (DRAWS["unit"], 0),
        (lambda: (torch.rand(6, 8) + 0.5) * torch.randn(6, 8).sign(), 0),
        (DRAWS["probabilities"], 0),
    ],
)
def test_the_first_sample_is_zero_unless_drawn_elements_keep_to_one_side_of_zero_or_away(draw, zeros):
    value, others = changed(draw)
    assert (others[ZERO_SAMPLE] == 0).sum() == zeros
    assert torch.equal(others[ZERO_SAMPLE][1:], value[1:])


def test_numbers_of_a_narrow_range_are_not_scaled_far():
    assert not torch.equal(changed(DRAWS["normal"])[1][SCALED_FAR], changed(DRAWS["normal"])[0])
    value, others = changed(lambda: DRAWS["normal"]().half())
    assert torch.equal(others[SCALED_FAR], value)


def test_on_a_device_that_asserts_a_unit_range_is_kept():
    _, others = changed(DRAWS["unit"], bounded=True)
    assert all((other <= 1).all() for other in others.values())
    assert changed(DRAWS["unit"])[1]["inputs scaled up to 200"].max() > 190


def test_a_constant_input_is_the_problems_own():
    value, others = changed(lambda: torch.linspace(-1, 1, 9))
    assert all(torch.equal(other, value) for other in others.values())


def code_changes(*draws):
    """What each change of masks and integers makes of the first draw, where it makes another of it."""
    others = [changed_by(name, Structure(draws), draws[0], bounded=False) for name in CODE_CHANGES]
    return [other for other in others if not torch.equal(other, draws[0])]


def test_integers_become_those_at_the_ends_of_their_range():
    first, second = torch.randint(1, 50, (100,)), torch.randint(1, 50, (100,))
    first[3], second[3] = 1, 50
    mostly, only = code_changes(first, second)
    assert (mostly == 1).sum() >= 80
    assert set(mostly.tolist()) <= set(first.tolist())
    assert set(only.tolist()) == {50}


def test_rows_and_most_elements_become_padding():
    """The integer in the drawn range that the reference treats apart; the smallest one, if there is none."""
    draws = [torch.randint(1, 50, (6, 10)) for _ in range(3)]
    for apart, padding in (((7,), 7), ((-100, 60), min(int(draw.min()) for draw in draws)), ((9, 8), 8)):
        structure = Structure(draws, apart)
        kinds = ("integers most of which are padding, or the smallest one",)
        kinds += ("integers whose first row is all padding, or the smallest one", "integers that are all padding")
        mostly, row, only = (changed_by(name, structure, draws[0], bounded=False) for name in kinds)
        assert (mostly == padding).sum() >= 50
        assert (row[0] == padding).all()
        assert torch.equal(row[1:], draws[0][1:])
        assert (only == padding).all() == (padding in apart)


def test_distinct_integers_stay():
    assert code_changes(torch.randperm(20), torch.randperm(20), torch.randperm(20)) == []


@pytest.mark.parametrize(
    "draw", [lambda: torch.eye(9)[torch.randint(0, 9, (40,))], lambda: torch.randint(0, 2, (40, 9)) * 2.0 - 1]
)
def test_labels_are_no_mask(draw):
    assert code_changes(draw(), draw(), draw()) == []


def test_starts_of_rows_give_one_row_all_elements():
    (other,) = code_changes(torch.tensor([0, 4, 9, 9, 20]), torch.tensor([0, 1, 9, 12, 20]))
    assert other.tolist() == [0, 20, 20, 20, 20]


ROW = [([False], True), ([True], True)]
ALL = [([False], False), ([True], False)]


@pytest.mark.parametrize(
    ("shape", "dtype", "changes"),
    [
        ((6, 8), torch.bool, ROW + ALL),
        ((8, 8), torch.bool, ALL),
        ((64,), torch.bool, ALL),
        ((6, 8), torch.float32, ROW + ALL),
    ],
)
def test_a_mask_is_emptied_and_filled_in_its_first_row_and_in_all(shape, dtype, changes):
    draws = [(torch.rand(shape) < 0.5).to(dtype) for _ in range(3)]
    draws[0].view(-1)[:2] = torch.tensor([0, 1])  # a row that is full, or empty, has one change less
    others = code_changes(*draws)
    found = [(other[:1].unique().tolist(), torch.equal(other[1:], draws[0][1:])) for other in others]
    assert found == changes


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(3, 8, dtype=torch.bool),
        torch.zeros(1, dtype=torch.bool),
        torch.ones(6, 6).tril(),
        torch.arange(12),
        torch.tensor([0, 4, 9]),
        torch.tensor([5, 2, 0, 1]),
        torch.full((4,), 12),
        torch.tensor(0),
    ],
    ids=str,
)
def test_constant_masks_and_integers_change(value):
    """Within their range, with the order of ascending ones and the first element of each row of a mask kept."""
    structure = Structure([value, value.clone()])
    new = changed_by(UNLIKE_EVERY_DRAW, structure, value, bounded=False)
    assert not torch.equal(new, value)
    assert new.dtype == value.dtype
    assert new.shape == value.shape
    assert int(new.min()) >= 0
    assert int(new.max()) <= max(1, int(value.max()))
    if structure.ascends:
        assert bool((new.diff() >= 0).all())
        assert new[[0, -1]].tolist() == value[[0, -1]].tolist()
    elif value.dim() and value.shape[-1] > 1:
        assert torch.equal(new[..., 0], value[..., 0])


@pytest.mark.parametrize("value", [torch.tensor(0), torch.full((4,), -100)], ids=str)
def test_a_constant_keeps_a_range_that_is_asserted(value):
    """An index beyond a table of one row, or the label -50, would end a process on a device."""
    structure = Structure([value, value.clone()])
    assert changed_by(UNLIKE_EVERY_DRAW, structure, value, bounded=False) is not value
    assert changed_by(UNLIKE_EVERY_DRAW, structure, value, bounded=True) is value


def test_what_varies_does_not_change_so():
    draws = [torch.tensor([0, 4, 9]), torch.tensor([0, 5, 9])]
    assert changed_by(UNLIKE_EVERY_DRAW, Structure(draws), draws[0], bounded=False) is draws[0]
    weights = torch.ones(4) / 4
    assert changed_by(UNLIKE_EVERY_DRAW, Structure([weights, weights]), weights, bounded=False) is weights
