"""Tensors of few elements are handled together."""

import pytest
import torch

from grader.grading.compare.together import HOST_ELEMENTS, each_on_host


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_few_elements_are_handled_on_the_host_and_come_back(device):
    sizes = (0, 1, 1, 300, HOST_ELEMENTS, HOST_ELEMENTS + 1)
    dtypes = (torch.float32, torch.float16, torch.int64)
    tensors = [(100 * torch.randn(size, device=device)).to(dtype) for dtype in dtypes for size in sizes]
    seen = []

    def changed(at, value):
        seen.append(value.device.type)
        return value + 1 if at % 2 else value

    found = each_on_host(changed, tensors)
    assert seen == ["cpu" if tensor.numel() <= HOST_ELEMENTS else device for tensor in tensors]
    for at, (value, tensor) in enumerate(zip(found, tensors, strict=True)):
        assert (value is tensor) == (at % 2 == 0)
        assert value.device == tensor.device
        assert torch.equal(value, tensor + at % 2)
