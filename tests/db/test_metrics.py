"""Figures over many problems, beside what they are by definition."""

import itertools

import pytest

from db.metrics import fast_p, pass_at_k


@pytest.mark.parametrize(("samples", "right", "k"), [(5, 0, 2), (5, 2, 1), (6, 3, 2), (6, 1, 6), (4, 4, 3)])
def test_pass_at_k_is_the_share_of_draws_with_a_right_one(samples, right, k):
    draws = list(itertools.combinations([True] * right + [False] * (samples - right), k))
    assert pass_at_k(samples, right, k) == pytest.approx(sum(map(any, draws)) / len(draws))


@pytest.mark.parametrize("k", [0, 6])
def test_pass_at_k_of_too_few_samples(k):
    with pytest.raises(ValueError, match="of 5 samples"):
        pass_at_k(5, 1, k)


def test_fast_p():
    speedups = [2.0, 1.0, 0.7, None]
    assert [fast_p(speedups, p, 8) for p in (0.0, 0.7, 1.0, 2.0)] == [4 / 8, 2 / 8, 1 / 8, 0.0]
