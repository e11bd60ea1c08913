"""Writes outside of a tensor are found with name, side and distance; guarded tensors keep their values."""

import ctypes

import pytest
import torch

from grader.protocol import ALIGNMENT_BYTES
from grader.worker.autograd.engine import TooLong
from grader.worker.checks.redzones import ZONE_BYTES, Redzones

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)


def write(tensor, offset, value=0x5A):
    """Write one byte at an offset from the tensor's first."""
    ctypes.c_uint8.from_address(tensor.data_ptr() + offset).value = value


def breaches_of(zones):
    return [(breach.name, breach.side, breach.nbytes, breach.temporary) for breach in zones.breaches()]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 3, 64, 1001])
def test_each_byte_around_a_tensor_is_watched(dtype, count):
    for offset, side, distance in (
        (0, "after", 1),
        (6, "after", 7),
        (ZONE_BYTES - 1, "after", ZONE_BYTES),
        (-1, "before", 1),
        (-ZONE_BYTES, "before", ZONE_BYTES),
    ):
        zones = Redzones("nan")
        x = zones.copy(torch.ones(count, dtype=dtype), "x")
        assert breaches_of(zones) == []
        write(x, offset + x.nbytes if side == "after" else offset)
        assert breaches_of(zones) == [("x", side, distance, False)]


def test_a_write_inside_is_no_breach():
    zones = Redzones("nan")
    x = zones.copy(torch.zeros(5), "x")
    x.fill_(7)
    write(x, 0)
    write(x, x.nbytes - 1)
    assert breaches_of(zones) == []


def test_a_copy_from_one_redzone_to_the_next_is_found():
    zones = Redzones("nan")
    x, y = zones.copy(torch.ones(4), "x"), zones.copy(torch.ones(4), "y")
    ctypes.memmove(y.data_ptr() + y.nbytes, x.data_ptr() + x.nbytes, 4)
    assert [name for name, *_ in breaches_of(zones)] == ["y"]


@pytest.mark.parametrize("value", [torch.randn(3, 5), torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
                                   torch.randn(6, 4).t(), torch.arange(7), torch.tensor(2.0)])  # fmt: skip
def test_a_guarded_tensor_keeps_values_and_layout(value):
    moved = Redzones("nan").copy(value, "x")
    assert torch.equal(moved, value)
    assert moved.stride() == value.stride()
    assert (moved.dtype, moved.is_leaf, moved.storage_offset()) == (value.dtype, True, 0)
    assert moved.data_ptr() % ALIGNMENT_BYTES == 0
    assert moved.untyped_storage().nbytes() == value.nbytes


def test_allocations_are_guarded_and_uninitialised_floats_are_nan():
    zones = Redzones("nan")
    with zones:
        empty, zeros = torch.empty(4, 4), torch.zeros(3)
        y = torch.relu(torch.randn(5))
    assert empty.isnan().all()
    assert not zeros.any()
    for tensor in (empty, zeros, y):
        write(tensor, tensor.nbytes)
    zones.rename(y, "output")
    assert breaches_of(zones) == [
        ("aten.empty", "after", 1, True),
        ("aten.zeros", "after", 1, True),
        ("output", "after", 1, False),
    ]


def test_gradients_are_guarded_and_unchanged():
    x = torch.randn(4, 3, requires_grad=True)
    weight = torch.randn(3, 3, requires_grad=True)
    plain = torch.autograd.grad(torch.tanh(x @ weight).sum(), (x, weight))
    zones = Redzones("nan")
    with zones:
        guarded = torch.autograd.grad(torch.tanh(x @ weight).sum(), (x, weight))
    assert all(torch.equal(a, b) for a, b in zip(plain, guarded, strict=True))
    write(guarded[1], guarded[1].nbytes)
    zones.rename(guarded[1], "grad:weight")
    assert breaches_of(zones) == [("grad:weight", "after", 1, False)]


def test_zeros_report_no_breach():
    zones = Redzones("zero")
    with zones:
        x = torch.empty(4)
    assert not x.any()
    write(x, x.nbytes)
    assert breaches_of(zones) == []


def test_views_and_writes_in_place_stay_with_their_tensor():
    zones = Redzones("nan")
    with zones:
        x = torch.zeros(4, 4)
        row = x[1]
        row.add_(1)
    assert x.sum() == 4
    assert row.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_a_pass_of_many_operators_ends_in_time():
    def many():
        x = torch.rand(8, requires_grad=True)
        for _ in range(100_000):
            x = x + 1

    with Redzones("nan", seconds=0.2), pytest.raises(TooLong):
        many()
