"""Draws inputs and grad_outputs, and perturbs inputs and parameters to show the effect of rounding."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeGuard

import torch

from grader.catalog.problem_module import Variant
from grader.executor.job import expandable_axis
from grader.grading.compare import blocks, tolerance
from grader.grading.compare.nonsmooth import PERTURBATION_ULPS
from grader.machine.backends import backend
from grader.verdict.models import Device

OTHER_DRAWS = 2
"""Further draws of the inputs that must have a property before it counts as the problem's. A choice: an output of
argmax may agree once by chance, and an element behind a ReLU is 0 in all three draws in one of eight cases."""
SMALL = 1e-2
"""Largest absolute value of a constant that a parameter starts with and that training is sure to change. A choice:
above LayerScale's 1e-6 and 1e-5, below any scale that a trained model may keep."""


def draw_inputs(variant: Variant, device: Device, seed: int) -> tuple[list[object], list[object]]:
    """(constructor arguments, forward arguments) of a variant: tensors on the device, floats in float32."""
    with torch.random.fork_rng(devices=backend(device).random_devices()):
        torch.manual_seed(seed)
        init_inputs = list(variant.make_init_inputs())
        with torch.device(device.value):
            inputs = [  # drawn on the device unless the problem's code names another
                value.to(device.value) if isinstance(value, torch.Tensor) else value for value in variant.make_inputs()
            ]
    return init_inputs, [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def draw_cotangent(shape: tuple[int, ...], dtype: torch.dtype, device: Device, constant: bool) -> torch.Tensor:
    """A standard normal grad_output; `constant` repeats it along the first dimension longer than 1."""
    extents = list(shape)
    axis = expandable_axis(shape)
    if constant and axis is not None:
        extents[axis] = 1
    generator = torch.Generator(device.value).manual_seed(secrets.randbits(62))
    drawn_as = dtype if dtype.is_complex else torch.float32
    value = torch.randn(extents, generator=generator, device=device.value, dtype=drawn_as).to(dtype)
    return value.expand(shape).contiguous()


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Whether the value is a floating-point tensor."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def perturbed(inputs: Sequence[object], device: Device, ulps: float = PERTURBATION_ULPS) -> list[object]:
    """Inputs with relative noise of `ulps` units of float32's epsilon."""
    return [_noisy(value, device, ulps) if is_float(value) else value for value in inputs]


def perturbed_state(
    state: Mapping[str, torch.Tensor], device: Device, ulps: float = PERTURBATION_ULPS
) -> dict[str, torch.Tensor]:
    """Parameters and buffers with the same noise as `perturbed` adds."""
    return {name: _noisy(value, device, ulps) if is_float(value) else value for name, value in state.items()}


def _noisy(value: torch.Tensor, device: Device, ulps: float) -> torch.Tensor:
    # Relative noise keeps exact zeros, where a candidate must follow the reference's convention.
    noisy = value.to(device.value, copy=True).contiguous()
    if is_mask(noisy):
        return noisy
    codes = whole_numbers(noisy)  # truncated to an index, 3.1 is still 3 and 2.9 is not
    unit = in_unit_range(noisy)
    for piece in torch.split(noisy.view(-1), blocks.CHUNK_ELEMENTS):
        noise = torch.randn_like(piece)
        piece *= 1 + ulps * tolerance.EPSILON * (noise.abs_() if codes else noise)
    return noisy.clamp_(-1, 1) if unit else noisy


def is_mask(value: torch.Tensor) -> bool:
    """Whether all elements are 0, 1 or -1.

    A model may compare such elements with 1, so noise would change their meaning.
    """
    return value.is_floating_point() and _all(value, lambda part: (part == 0) | (part.abs() == 1))


def whole_numbers(value: torch.Tensor) -> bool:
    """Whether all elements are whole numbers, which may be codes or indices."""
    return _all(value, lambda part: part == part.round())


def in_unit_range(value: torch.Tensor) -> bool:
    """Whether all elements are in [-1, 1].

    They may be probabilities or cosines, and a function may reject larger ones.
    """
    return _all(value, lambda part: part.abs() <= 1)


def _all(value: torch.Tensor, holds: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Whether a property holds for every element; False for an empty tensor.

    The first elements decide for most tensors without a pass over the rest.
    """
    flat, first = value.reshape(-1), tolerance.HOST_ELEMENTS
    return flat.numel() > 0 and all(bool(holds(part).all()) for part in (flat[:first], flat[first:]))


def as_trained(
    state: Mapping[str, torch.Tensor], parameters: Container[str], tables: Container[str], *, later: bool = False
) -> dict[str, torch.Tensor]:
    """Parameters and buffers changed as by some steps of training, except `tables`.

    A submission that still uses the values from construction then gives other results. Unless `later`, only tensors
    with all elements equal change, such as the weight and statistics of a norm or a branch that starts at zero:
    unchanged, such a tensor would have no effect, and a submission that omits it would be correct.
    """
    return {
        name: value if name in tables else _trained(value, learned=name in parameters, later=later)
        for name, value in state.items()
    }


def _trained(value: torch.Tensor, *, learned: bool, later: bool) -> torch.Tensor:
    """One tensor after some steps of training.

    A parameter (`learned`) that starts as a small constant, such as LayerScale's 1e-6, grows and keeps its sign.
    Otherwise the branch that it scales, and any error there, would be lost in rounding.
    """
    constant = value.numel() > 0 and bool((value == value.reshape(-1)[0]).all())
    if not value.is_floating_point() or not (later or constant):
        return value
    noise = 0.1 * torch.randn_like(value)
    if learned and constant and 0 < abs(float(value.reshape(-1)[0])) <= SMALL:
        return value + noise.abs() * value.sign()
    return value * (1 + noise) if bool(value.any()) else noise


def zeros_or_ones(value: torch.Tensor) -> bool:
    """Whether all elements are 0, or all are 1."""
    return value.numel() > 0 and bool((value == 0).all() or (value == 1).all())
