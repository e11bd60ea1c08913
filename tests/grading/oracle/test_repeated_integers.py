"""Integers that the problem draws on their own repeat in a draw; others stay as they are."""

import pytest
import torch

from grader.grading.oracle.repeated_integers import draw_with_repeats

ROWS = 1_000_000_000


def tokens():
    return torch.randint(ROWS, (40,))


def rows_and_their_sum():
    lengths = torch.randint(ROWS, (40,))
    return [lengths, lengths.sum()]


def starts():
    lengths = torch.randint(ROWS, (40,))
    offsets = lengths.cumsum(0)
    return [offsets, lengths]


def as_many_as_drawn():
    lengths = torch.randint(1_000, ROWS, (40,))
    return [lengths, torch.zeros(int(lengths.min()) % 7)]


def twice():
    drawn = torch.randint(ROWS, (40,))
    return [drawn, drawn.view(4, 10)]


def at_drawn_positions():
    drawn = torch.randint(ROWS, (40,))
    return [drawn, torch.arange(100)[drawn % 100]]


@pytest.mark.parametrize(
    "made",
    [
        lambda: [tokens()],
        lambda: [tokens().to(torch.int32)],
        lambda: [tokens().view(5, 8)[:4]],
        lambda: [torch.randn(3), torch.randint(0, ROWS, size=(4, 10)).long()],
        lambda: [torch.zeros(tokens().shape), tokens()],
    ],
)
def test_integers_of_no_other_use_repeat(made):
    torch.manual_seed(0)
    usual = made()
    torch.manual_seed(0)
    drawn = draw_with_repeats(made)
    assert [(tensor.shape, tensor.dtype) for tensor in drawn] == [(tensor.shape, tensor.dtype) for tensor in usual]
    assert len(drawn[-1].unique()) < 36  # about a quarter of them repeat another
    assert torch.isin(drawn[-1], usual[-1]).all()


@pytest.mark.parametrize("count", [2, 4, 24])
def test_some_of_few_integers_repeat_in_any_draw(count):
    for _ in range(200):
        (drawn,) = draw_with_repeats(lambda: [torch.randint(ROWS, (count,))])
        assert len(drawn.unique()) < count


@pytest.mark.parametrize("count", [0, 1])
def test_no_integer_repeats_another_where_there_is_none(count):
    torch.manual_seed(0)
    usual = torch.randint(ROWS, (count,))
    torch.manual_seed(0)
    (drawn,) = draw_with_repeats(lambda: [torch.randint(ROWS, (count,))])
    assert torch.equal(drawn, usual)


@pytest.mark.parametrize(
    "made",
    [
        rows_and_their_sum,
        starts,
        as_many_as_drawn,
        twice,
        at_drawn_positions,
        lambda: [torch.randperm(40)],
        lambda: [torch.randint(ROWS, (40,)).sort().values],
        lambda: [torch.randint(ROWS, (40,)).float()],
        lambda: [torch.randint(ROWS, (40,), dtype=torch.float64)],
        lambda: [torch.randn(3), 5, None],
    ],
)
def test_integers_that_something_depends_on_stay(made):
    torch.manual_seed(0)
    usual = made()
    torch.manual_seed(0)
    for value, other in zip(draw_with_repeats(made), usual, strict=True):
        assert torch.equal(value, other) if isinstance(other, torch.Tensor) else value == other
