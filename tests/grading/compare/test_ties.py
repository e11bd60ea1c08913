"""Gradients at ties: any choice passes, and what no choice gives fails."""

import itertools

import pytest
import torch

from grader.grading.compare import ties
from grader.grading.compare.ties import TiedInput, Ties, Weighed, broken, has_ties, wrong_together

SLOPE, ROUNDING = 1e-5, 4e-6


def rows() -> torch.Tensor:
    return torch.randint(0, 5, (16, 12), generator=torch.Generator().manual_seed(3)).double()


def of_maximum(x: torch.Tensor) -> torch.Tensor:
    """The gradient of each row's maximum, at its first place."""
    return torch.nn.functional.one_hot(x.argmax(1), x.shape[1]).double()


def tied(x: torch.Tensor) -> Ties:
    turns = [of_maximum(broken(x, turn, 64 * 2.0**-23, sign=1)) for turn in range(16)]
    return Ties(lambda: [of_maximum(x), *turns], x)


def last(x: torch.Tensor) -> torch.Tensor:
    return of_maximum(x.flip(1)).flip(1)


def split(x: torch.Tensor) -> torch.Tensor:
    largest = (x == x.amax(1, keepdim=True)).double()
    return largest / largest.sum(1, keepdim=True)


@pytest.mark.parametrize("choice", [of_maximum, last, split])
def test_any_choice_passes(choice):
    x = rows()
    assert tied(x).explain(of_maximum(x), choice(x), SLOPE, ROUNDING)
    assert not wrong_together([TiedInput(tied(x), of_maximum(x), choice(x), SLOPE)])


@pytest.mark.parametrize(
    "fault",
    [
        lambda x: 0 * x,
        lambda x: 0.99 * of_maximum(x),
        lambda x: (x == x.amax(1, keepdim=True)).double(),
        lambda x: of_maximum(x).roll(1, 1),
        lambda x: of_maximum(x) * ((x == x.amax(1, keepdim=True)).sum(1, keepdim=True) == 1),
        lambda x: split(x).to(torch.bfloat16).double(),
    ],
)
def test_what_no_choice_gives_fails(fault):
    x = rows()
    assert not tied(x).explain(of_maximum(x), fault(x), SLOPE, ROUNDING)


def test_a_choice_between_small_gradients_passes():
    """Which of two equal inputs gets 6e-5 is a choice as well, although rounding allows a sixth of it."""
    x, y = torch.arange(24.0).remainder(5).double(), torch.arange(24.0).remainder(4).double()
    grad_output = torch.ones(24).double().index_fill(0, torch.tensor(22), 6e-5)

    def of_x(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return grad_output * (x >= y)

    noisy = [
        [broken(operand, turn, 64 * 2.0**-23, sign=1, position=at) for at, operand in enumerate((x, y))]
        for turn in range(16)
    ]
    small = Ties(lambda: [of_x(x, y), *(of_x(*pair) for pair in noisy)], x)
    assert small.explain(of_x(x, y), grad_output * (x > y), SLOPE, ROUNDING)
    assert not small.explain(of_x(x, y), grad_output * ((x > y) + 9.0 * (x == y)), SLOPE, ROUNDING)


def test_inputs_that_tie_with_each_other_are_judged_together():
    x, y = torch.arange(24.0).remainder(5).double(), torch.arange(24.0).remainder(4).double()

    def of_larger(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return (x >= y).double(), (x < y).double()

    noisy = [[broken(value, turn, 64 * 2.0**-23, sign=1) for value in (x, y)] for turn in range(16)]
    runs = [of_larger(x, y), *(of_larger(*pair) for pair in noisy)]
    both = [Ties(lambda side=side: [run[side] for run in runs], value) for side, value in enumerate((x, y))]

    def wrong(grad_x: torch.Tensor, grad_y: torch.Tensor) -> bool:
        right = of_larger(x, y)
        parts = [TiedInput(both[side], right[side], actual, SLOPE) for side, actual in enumerate((grad_x, grad_y))]
        return wrong_together(parts)

    assert not wrong((x > y).double(), (x <= y).double())
    assert not wrong((x > y) + 0.5 * (x == y), (x < y) + 0.5 * (x == y))
    assert wrong((x >= y).double(), (x <= y).double())
    assert wrong((x > y).double(), (x < y).double())


def test_of_many_equal_elements_each_may_get_a_share():
    """Sixteen runs choose sixteen of forty at most, so that no run moves the others."""
    x, y = torch.ones(3, 40).double(), torch.arange(120.0).view(3, 40).remainder(7).double()
    right = of_maximum(x)
    of_y = Ties(lambda: [y] * 17, y)
    assert not wrong_together([TiedInput(tied(x), right, split(x), SLOPE), TiedInput(of_y, y, y, SLOPE)])
    assert wrong_together([TiedInput(tied(x), right, right, SLOPE), TiedInput(of_y, y, 2 * y, SLOPE)])


def test_a_small_gradient_that_moves_alone_keeps_no_sum():
    """In column 3, a run moves a small gradient and none the large one, of which a right backward gives a share."""
    values = torch.tensor([[5.0, 5, 5, 5, 1, 2], [1, 2, 3, 5, 5, 4], [6, 7, 8, 9, 10, 11]])
    right = torch.zeros(3, 6, dtype=torch.float64)
    right[2, 0] = 1.0

    def chosen(large, small):
        run = right.clone()
        run[0, large], run[1, small] = 1.0, 0.018
        return run

    split = right.clone()
    split[0, :4], split[1, 3:5] = 0.25, 0.009
    runs = [chosen(0, 3), *(chosen(turn % 3, 3 + turn % 2) for turn in range(17))]
    assert Ties(lambda: runs, values).explain(runs[0], split, 4e-3, 1e-5)
    lost = split.clone()
    lost[0, 3] = 0.0
    assert not Ties(lambda: runs, values).explain(runs[0], lost, 4e-3, 1e-5)


def test_random_numbers_masks_and_zeros_are_no_ties():
    assert has_ties(rows().float())
    assert not has_ties(rows().bfloat16()), "rounding undoes noise"
    assert has_ties(torch.randint(0, 9, (40,)).float() / 255)
    assert has_ties(torch.cat([torch.zeros(5000), torch.randint(0, 9, (40,)) / 255])), "an image has a border"
    drawn = torch.rand(64)
    for value in (drawn, (drawn > 0.5).float(), drawn.relu() * (drawn > 0.5), torch.zeros(8), torch.arange(8), 2.0):
        assert not has_ties(value)


def test_noise_orders_ties_in_both_ways_and_keeps_a_sign():
    x = torch.ones(3, 8)
    first, final = (broken(x, turn, 1e-5, sign=0) for turn in (2, 0))
    assert bool((first.argmax(1) == 0).all())
    assert bool((final.argmax(1) == 7).all())
    assert bool((broken(x, 5, 1e-5, sign=1) >= 1).all())
    assert bool((broken(x, 5, 1e-5, sign=-1) <= 1).all())
    assert "tied elements" in ties.REMEDY


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(range(4), 2)))
def test_equal_elements_of_two_inputs_get_both_orders(one, other):
    for x in (torch.ones(5, 61), torch.arange(305.0).view(5, 61).remainder(6)):
        larger = [
            broken(x, turn, 1e-5, sign=1, position=one) > broken(x, turn, 1e-5, sign=1, position=other)
            for turn in range(4)
        ]
        assert bool(torch.stack(larger).any(0).all())
        assert not bool(torch.stack(larger).all(0).any())


def test_numbers_that_are_equal_by_their_precision_are_no_ties():
    assert not has_ties(torch.randn(4096).to(torch.bfloat16))
    assert not has_ties(torch.randint(0, 9, (40,)).half())


@pytest.mark.parametrize(("error", "wrong"), [(-103.2, False), (-400.0, True)])
def test_choices_of_all_runs_that_nearly_cancel_are_no_bound_for_another_choice(error, wrong):
    """A clamp's edges: in one of 230 draws, what the runs move adds up to little more than noise."""
    runs = torch.tensor([-58.3, -56.2, 20.8, -29.1, -44.9], dtype=torch.float64)
    given = torch.tensor(error), runs, torch.tensor(10.3, dtype=torch.float64)
    assert Weighed(*given).is_wrong == wrong
