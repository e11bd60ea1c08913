"""Cached GPU memory goes back only where it is much and the device is crowded."""

import pytest
import torch

from grader.protocol import cached_memory

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize(
    ("nbytes", "crowded_bytes", "returned"),
    [
        pytest.param(2 << 30, 0, True, id="much-and-crowded"),
        pytest.param(2 << 30, 1 << 50, False, id="much-and-roomy"),
        pytest.param(1 << 28, 0, False, id="little-and-crowded"),
    ],
)
def test_cached_memory_is_returned_where_the_device_is_crowded(nbytes, crowded_bytes, returned, monkeypatch):
    monkeypatch.setattr(cached_memory, "CROWDED_BYTES", crowded_bytes)
    torch.cuda.empty_cache()
    torch.empty(nbytes, dtype=torch.uint8, device="cuda")  # freed at once, and cached
    cached = torch.cuda.memory_reserved()
    cached_memory.return_if_crowded()
    assert (torch.cuda.memory_reserved() < cached) is returned
