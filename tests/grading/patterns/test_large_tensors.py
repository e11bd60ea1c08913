"""Where a tensor is wrong, found in blocks, and the stretch that it makes of one at full size."""

import pytest
import torch

from grader.grading.compare import together
from grader.grading.compare.expected import Expected
from grader.grading.compare.scaling import scale_of
from grader.grading.patterns import large_tensors
from grader.grading.patterns.large_tensors import indices_of_large, stretch
from grader.grading.patterns.pattern import MAX_ELEMENTS

ROWS, COLUMNS = 1000, 1200


@pytest.fixture(autouse=True, params=[1000, 1 << 20])
def blocks_of(request, monkeypatch):
    """Blocks in which a tensor of this file is one or many."""
    monkeypatch.setattr(together, "CHUNK_ELEMENTS", (request.param, request.param))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_wrong_elements_are_counted_and_the_ends_found(dtype):
    right = torch.rand(ROWS, COLUMNS).to(dtype) + 1
    actual = right.clone()
    assert large_tensors.wrong_places(actual, right)[0] == 0
    actual[7, 3:5] = 0
    actual[900, 399] = 4
    actual[901, 0] = float("nan")
    found = large_tensors.wrong_places(actual, right)
    first, last, odd = 7 * COLUMNS + 3, 900 * COLUMNS + 399, 901 * COLUMNS
    assert found == (3, first, last, False, 1, odd)


def test_a_large_tensor_without_its_last_rows_says_so():
    right = torch.randn(ROWS, COLUMNS).double()
    assert right.numel() > MAX_ELEMENTS
    expected = Expected("output", (ROWS, COLUMNS), torch.float32, right)
    actual = right.float()
    assert stretch(actual, expected) is None
    actual[960:] = 0
    found = stretch(actual, expected)
    assert found.text == "is zero in the last 48000 of 1200000 elements, from [960, 0] on, and right before"
    actual[960:] = torch.randn(40, COLUMNS)
    assert stretch(actual, expected).text.startswith("is wrong in the last 48000")
    actual[970:] = right[970:]
    assert stretch(actual, expected).text == "is wrong from [960, 0] to [969, 1199], and right elsewhere"
    actual[:] = torch.randn(ROWS, COLUMNS)
    assert stretch(actual, expected) is None, "all of it is wrong"
    actual = torch.where(torch.rand(ROWS, COLUMNS) < 0.5, right.float(), 0)
    assert stretch(actual, expected) is None, "scattered"


def test_the_indices_that_hold_all_wrong_elements_of_a_large_tensor_are_named():
    """Most elements are zero, as in the gradient of a max-pool, so that the wrong ones are no stretch."""
    right = torch.where(torch.rand(ROWS, COLUMNS) < 0.05, torch.randn(ROWS, COLUMNS), 0).double()
    expected = Expected("x", (ROWS, COLUMNS), torch.float32, right)
    actual = right.float()
    assert indices_of_large(actual, expected) is None
    actual[990:] = 0
    assert stretch(actual, expected) is None
    found = indices_of_large(actual, expected)
    assert found.text == "is wrong at the last 10 of 1000 rows (990 and up) only, in some of the elements there"
    actual = right.float().where(torch.rand(ROWS, COLUMNS) < 0.5, 0)
    assert indices_of_large(actual, expected) is None, "scattered"


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_a_factor_is_found_in_blocks(dtype):
    right = torch.randn(ROWS, COLUMNS, dtype=dtype)
    assert scale_of(2 * right, right) == pytest.approx(2)
    assert scale_of(right, right) is None
    other = 2 * right
    other[-1] = 0
    assert scale_of(other, right) is None
