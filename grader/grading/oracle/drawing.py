"""Draws inputs and grad_outputs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import torch

from grader.catalog.problem_module import Variant
from grader.executor.job import expandable_axis
from grader.grading.compare.expected import Expected
from grader.machine.backends import backend
from grader.verdict.models import Device

OTHER_DRAWS = 2
"""Further draws of the inputs that must have a property before it counts as the problem's. A choice: an output of
argmax may agree once by chance, and an element behind a ReLU is 0 in all three draws in one of eight cases."""


def draw_inputs(variant: Variant, device: Device, seed: int) -> tuple[list[object], list[object]]:
    """(constructor arguments, forward arguments) of a variant: tensors on the device, floats in float32."""
    with torch.random.fork_rng(devices=backend(device).random_devices()):
        torch.manual_seed(seed)
        init_inputs = list(variant.make_init_inputs())
        with torch.device(backend(device).torch_device):
            inputs = [  # drawn on the device unless the problem's code names another
                value.to(backend(device).torch_device) if isinstance(value, torch.Tensor) else value
                for value in variant.make_inputs()
            ]
    return init_inputs, [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def draw_cotangents(like: Mapping[str, torch.Tensor | Expected], device: Device) -> dict[str, torch.Tensor]:
    """A standard normal grad_output for each of these outputs."""
    return {name: draw_cotangent(tuple(of.shape), of.dtype, device) for name, of in like.items()}


def draw_cotangent(shape: tuple[int, ...], dtype: torch.dtype, device: Device, constant: bool = False) -> torch.Tensor:
    """A standard normal grad_output; `constant` repeats it along the first dimension longer than 1."""
    extents = list(shape)
    axis = expandable_axis(shape)
    if constant and axis is not None:
        extents[axis] = 1
    generator = torch.Generator(backend(device).torch_device).manual_seed(secrets.randbits(62))
    drawn_as = dtype if dtype.is_complex else torch.float32
    value = torch.randn(extents, generator=generator, device=backend(device).torch_device, dtype=drawn_as).to(dtype)
    return value.expand(shape).contiguous()
