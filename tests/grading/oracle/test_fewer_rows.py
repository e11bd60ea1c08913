"""A problem with one large size gets a second one, with fewer rows of the same inputs."""

from pathlib import Path

import pytest
import torch

from grader.catalog.problem_module import FULL, load_problem
from grader.grading.oracle.fewer_rows import ROWS, with_fewer_rows
from grader.verdict.models import Problem

SOURCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x, y):
        return x @ y


def get_inputs():
    return [torch.rand({x}), torch.rand({y})]
"""


def module(x, y):
    source = SOURCE.format(x=x, y=y)
    return load_problem(Problem(id=f"rows_{x}_{y}".replace(", ", "_"), path=Path("rows.py"), source=source))


def shapes(module):
    return [tuple(value.shape) for value in module.variants[ROWS].make_inputs()]


def test_only_the_first_rows_are_kept_of_all_inputs_with_as_many():
    whole = module("4096, 1024", "4096, 512")
    first, second = with_fewer_rows(whole, whole.variants[FULL].make_inputs())
    assert shapes(first) == [(682, 1024), (682, 512)]
    assert list(first.variants) == [ROWS, "half", "quarter", FULL]
    assert [len(value) for value in first.variants["half"].make_inputs()] == [2048, 2048]
    assert shapes(second) == [(682, 1024), (4096, 512)]


def test_a_matrix_of_another_length_stays_whole():
    whole = module("8192, 1024", "1024, 64")
    (only,) = with_fewer_rows(whole, whole.variants[FULL].make_inputs())
    kept, other = only.variants[ROWS].make_inputs()
    assert kept.shape[0] < 8192 // 2
    assert other.shape == (1024, 64)


def test_the_rows_are_those_that_the_full_size_begins_with():
    whole = module("8192, 1024", "1024, 64")
    (only,) = with_fewer_rows(whole, whole.variants[FULL].make_inputs())
    torch.manual_seed(3)
    full = whole.variants[FULL].make_inputs()[0]
    torch.manual_seed(3)
    kept = only.variants[ROWS].make_inputs()[0]
    assert torch.equal(kept, full[: len(kept)])


@pytest.mark.parametrize(("columns", "kept"), [(100_000, 10), (500_000, 2), (2_000_000, 2)])
def test_batch_statistics_have_some_rows_left(columns, kept):
    whole = module(f"32, {columns}", "2, 2")
    (only,) = with_fewer_rows(whole, whole.variants[FULL].make_inputs())
    assert shapes(only)[0] == (kept, columns)


@pytest.mark.parametrize(("x", "y"), [("64, 64", "64, 8"), ("3, 4000000", "2, 2")], ids=["small", "few rows"])
def test_nothing_is_left_out_where_that_saves_little(x, y):
    whole = module(x, y)
    assert list(with_fewer_rows(whole, whole.variants[FULL].make_inputs())) == []
