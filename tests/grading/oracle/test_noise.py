"""Rounding of tensors to the bits of TensorFloat-32."""

import torch

from grader.grading.oracle.noise import rounded_each


def test_rounding_to_tensorfloat32_keeps_ten_bits_of_mantissa():
    values = torch.tensor([1 + 2**-10, 1 + 2**-11, 1 + 2**-12, -(1 + 2**-11), 2**-130 * 1.0, 0.0, float("inf")])
    expected = torch.tensor([1 + 2**-10, 1 + 2**-10, 1.0, -(1 + 2**-10), 2**-130 * 1.0, 0.0, float("inf")])
    assert torch.equal(rounded_each([values])[0], expected)
    drawn = torch.randn(10_000)
    error = (rounded_each([drawn])[0] / drawn - 1).abs().max()
    assert 2**-12 < error <= 2**-11


def test_only_float32_tensors_are_rounded():
    for value in (torch.randn(4, dtype=torch.float64), torch.arange(4), 1.5, None):
        assert rounded_each([value])[0] is value
