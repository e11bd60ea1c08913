"""What is drawn at random: inputs, grad_outputs, and the noise that tells how far rounding may carry."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Mapping, Sequence
from typing import TypeGuard

import torch

from grader.catalog.problem_module import Variant
from grader.executor.job import expandable_axis
from grader.grading.compare import blocks, tolerance
from grader.machine.backends import backend
from grader.verdict.models import Device

PERTURBATION_ULPS = 8.0
"""Relative size of the noise on inputs and parameters, in units of float32's spacing: what a long chain of roundings
may do. Large enough that a kink which a candidate could flip is flipped by one of the runs with near certainty."""
SMALL = 1e-2
"""A constant that a parameter hardly keeps in training."""
FIRST = 1 << 10
"""So many elements tell that most tensors are no masks and no codes."""


def draw_inputs(variant: Variant, device: Device, seed: int) -> tuple[list[object], list[object]]:
    """(constructor arguments, forward arguments) of a variant; tensors on the device, floats in float32."""
    with torch.random.fork_rng(devices=backend(device).random_devices()):
        torch.manual_seed(seed)
        init_inputs = list(variant.make_init_inputs())
        with torch.device(device.value):
            inputs = [  # on the device where the problem's code lets it
                value.to(device.value) if isinstance(value, torch.Tensor) else value for value in variant.make_inputs()
            ]
    return init_inputs, [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def draw_cotangent(shape: tuple[int, ...], dtype: torch.dtype, device: Device, constant: bool) -> torch.Tensor:
    """A standard normal grad_output; `constant`: along the first dimension that is longer than 1."""
    drawn = list(shape)
    axis = expandable_axis(shape)
    if constant and axis is not None:
        drawn[axis] = 1
    generator = torch.Generator(device.value).manual_seed(secrets.randbits(62))
    drawn_as = dtype if dtype.is_complex else torch.float32
    value = torch.randn(drawn, generator=generator, device=device.value, dtype=drawn_as).to(dtype)
    return value.expand(shape).contiguous()


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """A tensor of floating-point numbers."""
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def perturbed(inputs: Sequence[object], device: Device, ulps: float = PERTURBATION_ULPS) -> list[object]:
    """Inputs as a long chain of roundings may leave them."""
    return [_noisy(value, device, ulps) if is_float(value) else value for value in inputs]


def perturbed_state(
    state: Mapping[str, torch.Tensor], device: Device, ulps: float = PERTURBATION_ULPS
) -> dict[str, torch.Tensor]:
    """Likewise parameters and buffers."""
    return {name: _noisy(value, device, ulps) if is_float(value) else value for name, value in state.items()}


def _noisy(value: torch.Tensor, device: Device, ulps: float) -> torch.Tensor:
    # Relative noise leaves zeros alone: at an exact zero a candidate must follow the reference's convention.
    noisy = value.to(device.value, copy=True).contiguous()
    if is_mask(noisy):
        return noisy
    codes = whole_numbers(noisy)  # as an index 3.1 is 3, and 2.9 is not
    unit = in_unit_range(noisy)
    for piece in torch.split(noisy.view(-1), blocks.CHUNK_ELEMENTS):
        noise = torch.randn_like(piece)
        piece *= 1 + ulps * tolerance.EPSILON * (noise.abs_() if codes else noise)
    return noisy.clamp_(-1, 1) if unit else noisy


def is_mask(value: torch.Tensor) -> bool:
    """Floats, nothing but 0, 1 and -1: what asks for a 1, or takes it from 1, does not mean what is nearly that."""
    return value.is_floating_point() and _all(value, lambda part: (part == 0) | (part.abs() == 1))


def whole_numbers(value: torch.Tensor) -> bool:
    """Codes or indices, perhaps."""
    return _all(value, lambda part: part == part.round())


def in_unit_range(value: torch.Tensor) -> bool:
    """No element is outside [-1, 1]: they may be probabilities or cosines, and a function may reject larger ones."""
    return _all(value, lambda part: part.abs() <= 1)


def _all(value: torch.Tensor, holds: Callable[[torch.Tensor], torch.Tensor]) -> bool:
    """Of every element; of no tensor that has none. The first ones tell most tensors apart."""
    flat = value.reshape(-1)
    return flat.numel() > 0 and all(bool(holds(part).all()) for part in (flat[:FIRST], flat[FIRST:]))


def as_trained(
    state: Mapping[str, torch.Tensor], parameters: Container[str], tables: Container[str], *, later: bool = False
) -> dict[str, torch.Tensor]:
    """Parameters and buffers, but for `tables`, as some steps of training would leave them.

    So that values kept from construction show. Unless `later`, only what starts with all elements the same, as a norm's
    parameters and statistics or a branch that starts at zero: who leaves that out would be right.
    """
    return {
        name: value if name in tables else _trained(value, learned=name in parameters, later=later)
        for name, value in state.items()
    }


def _trained(value: torch.Tensor, *, learned: bool, later: bool) -> torch.Tensor:
    """A parameter (`learned`) that starts as a small constant, as LayerScale's 1e-6, has grown, with its sign: else
    what it scales is lost in rounding, and so is whatever is wrong there."""
    constant = value.numel() > 0 and bool((value == value.reshape(-1)[0]).all())
    if not value.is_floating_point() or not (later or constant):
        return value
    noise = 0.1 * torch.randn_like(value)
    if learned and constant and 0 < abs(float(value.reshape(-1)[0])) <= SMALL:
        return value + noise.abs() * value.sign()
    return value * (1 + noise) if bool(value.any()) else noise


def zeros_or_ones(value: torch.Tensor) -> bool:
    """All of it the one or the other."""
    return value.numel() > 0 and bool((value == 0).all() or (value == 1).all())
