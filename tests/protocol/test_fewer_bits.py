"""Significant bits are dropped by integer operations, which give what arithmetic gives."""

import math

import pytest
import torch

from grader.protocol.fewer_bits import of_bits

BITS = [2, 5, 8, 11]
DTYPES = [torch.bfloat16, torch.float16, torch.float32, torch.float64]


def drawn(dtype):
    """Numbers of many sizes, and ties of each count of bits."""
    numbers = torch.randn(2000, dtype=torch.float64) * 2.0 ** torch.randint(-8, 8, (2000,))
    ties = torch.arange(1, 512, dtype=torch.float64)
    value = torch.cat([numbers, ties, -ties, torch.zeros(1, dtype=torch.float64)]).to(dtype)
    return value[(value.abs() >= torch.finfo(dtype).smallest_normal) | (value == 0)]


def by_arithmetic(value, bits, round_digits):
    mantissa, exponent = torch.frexp(value.double())
    return torch.ldexp(round_digits(mantissa * 2.0**bits) / 2.0**bits, exponent).to(value.dtype)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("way", "round_digits"),
    [
        ("cut", torch.trunc),
        ("to even", torch.round),
        ("away", lambda value: (value.abs() + 0.5).floor() * value.sign()),
    ],
)
def test_it_is_what_arithmetic_gives(dtype, bits, way, round_digits):
    value = drawn(dtype)
    assert torch.equal(of_bits(value, bits, way), by_arithmetic(value, bits, round_digits))


@pytest.mark.parametrize(("way", "expected"), [("cut", 4.0), ("to even", 4.0), ("away", 5.0)])
def test_a_tie(way, expected):
    assert of_bits(torch.tensor([4.5, -4.5]), 3, way).tolist() == [expected, -expected]


@pytest.mark.parametrize("way", ["cut", "to even", "away"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite_stays(dtype, way):
    infinite, nan, zero = of_bits(torch.tensor([-math.inf, math.nan, -0.0], dtype=dtype), 4, way).tolist()
    assert infinite == -math.inf
    assert math.isnan(nan)
    assert math.copysign(1.0, zero) == -1.0


def test_a_nan_of_any_bits_stays():
    nan = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)
    assert all(of_bits(nan, 11, way).isnan().all() for way in ("to even", "away"))


def test_a_type_of_as_many_bits_stays():
    value = torch.randn(9).half()
    assert torch.equal(of_bits(value, 11, "to even"), value)
