"""Draws inputs and grad_outputs, and perturbs inputs and parameters to show the effect of rounding."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from grader.catalog.problem_module import Variant
from grader.executor.job import expandable_axis
from grader.grading.compare import blocks, ties, tolerance
from grader.grading.compare.narrow_types import spacing
from grader.grading.compare.nonsmooth import PERTURBATION_ULPS, ULPS
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


def draw_cotangent(shape: tuple[int, ...], dtype: torch.dtype, device: Device, constant: bool) -> torch.Tensor:
    """A standard normal grad_output; `constant` repeats it along the first dimension longer than 1."""
    extents = list(shape)
    axis = expandable_axis(shape)
    if constant and axis is not None:
        extents[axis] = 1
    generator = torch.Generator(backend(device).torch_device).manual_seed(secrets.randbits(62))
    drawn_as = dtype if dtype.is_complex else torch.float32
    value = torch.randn(extents, generator=generator, device=backend(device).torch_device, dtype=drawn_as).to(dtype)
    return value.expand(shape).contiguous()


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Whether the value is a floating-point tensor, of more than eight bits, which need scales."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1


def is_differentiable(value: object) -> TypeGuard[torch.Tensor]:
    """Whether the value is a floating-point or complex tensor."""
    return is_float(value) or (isinstance(value, torch.Tensor) and value.is_complex())


def perturbed(inputs: Sequence[object], device: Device, ulps: float = PERTURBATION_ULPS) -> list[object]:
    """Inputs with relative noise of `ulps` units of float32's epsilon.

    A tensor of 16 bits gets noise of half its own spacing from ULPS units on; with less, rounding leaves it unchanged.
    """
    return [_noisy(value, device, ulps) if is_differentiable(value) else value for value in inputs]


def ties_broken(inputs: Sequence[object], device: Device, turn: int, ulps: float) -> list[object]:
    """Inputs with the same noise, which orders equal elements in another way in each turn."""

    def one(value: object) -> object:
        if not is_float(value) or is_mask(value) or not ties.has_ties(value):
            return perturbed([value], device, ulps)[0]
        sign = 1 if whole_numbers(value) else -1 if in_unit_range(value) else 0
        return ties.broken(value, turn, ulps * tolerance.EPSILON, sign=sign)

    return [one(value) for value in inputs]


def perturbed_state(
    state: Mapping[str, torch.Tensor], device: Device, ulps: float = PERTURBATION_ULPS
) -> dict[str, torch.Tensor]:
    """Parameters and buffers with the same noise as `perturbed` adds."""
    return {name: _noisy(value, device, ulps) if is_differentiable(value) else value for name, value in state.items()}


def _noisy(value: torch.Tensor, device: Device, ulps: float) -> torch.Tensor:
    if value.is_complex():
        return torch.view_as_complex(_noisy(torch.view_as_real(value), device, ulps))
    # Relative noise keeps exact zeros, where a candidate must follow the reference's convention.
    noisy = value.to(backend(device).torch_device, copy=True).contiguous()
    if is_mask(value):
        return noisy
    values, size = values_of(value), ulps * tolerance.EPSILON
    if ulps >= ULPS:
        size = max(size, spacing(noisy.dtype) / 2)
    for piece in torch.split(noisy.view(-1), blocks.CHUNK_ELEMENTS):
        noise = torch.randn_like(piece, dtype=torch.promote_types(piece.dtype, torch.float32))
        # Truncated to an index, 3.1 is still 3 and 2.9 is not.
        piece.copy_(piece * (1 + size * (noise.abs_() if values.whole else noise)))
    return noisy.clamp_(-1, 1) if values.unit else noisy


def cut(value: Any, bits: int) -> Any:
    """A float32 tensor cut to so many significant bits, as tensor cores do; other values as they are.

    Nothing leaves its range, changes its sign or becomes zero.
    """
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    return (value.contiguous().view(torch.int32) & -(1 << (24 - bits))).view(torch.float32)


def rounded(value: Any) -> Any:
    """A float32 tensor rounded to TensorFloat-32's 10 bits of mantissa; other values as they are."""
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    bits = value.contiguous().view(torch.int32)
    return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)


class Values(NamedTuple):
    """The kinds of values that a tensor has; all False for an empty one."""

    mask: bool
    """All elements are 0, 1 or -1. A model may compare such elements with 1, so noise would change their meaning."""
    whole: bool
    """All elements are whole numbers, which may be codes or indices."""
    unit: bool
    """All elements are in [-1, 1]. They may be probabilities or cosines, and a function may reject larger ones."""


_known: MutableMapping[torch.Tensor, tuple[int, Values]] = WeakTensorKeyDictionary()
"""Values by tensor, with its version: a model has hundreds of parameters, and noise is added to each many times."""


def values_of(value: torch.Tensor) -> Values:
    """The kinds of values that a tensor has.

    The first elements decide for most tensors without a pass over the rest.
    """
    version, values = _known.get(value, (-1, Values(False, False, False)))
    if version != value._version:
        flat = (value.float() if value.is_floating_point() and value.itemsize == 1 else value).reshape(-1)
        parts = (flat[: tolerance.HOST_ELEMENTS], flat[tolerance.HOST_ELEMENTS :])
        found = [True, True, True] if flat.numel() else [False, False, False]
        for part in parts:
            if part.numel() and any(found):
                found = [a and b for a, b in zip(found, _kinds(part), strict=True)]
        values = Values(*found)
        _known[value] = value._version, values
    return values


def is_mask(value: torch.Tensor) -> bool:
    """Whether a tensor of floats is a mask: see `Values`."""
    return value.is_floating_point() and values_of(value).mask


def whole_numbers(value: torch.Tensor) -> bool:
    """Whether all elements are whole numbers: see `Values`."""
    return values_of(value).whole


def in_unit_range(value: torch.Tensor) -> bool:
    """Whether all elements are in [-1, 1]: see `Values`."""
    return values_of(value).unit


def _kinds(part: torch.Tensor) -> list[bool]:
    """The fields of `Values` for the elements of a part, read from a device at once."""
    size = part.abs() if part.dtype is not torch.bool else part
    whole = part == part.round() if part.is_floating_point() else torch.full_like(part, not part.is_complex())
    kinds = [((part == 0) | (size == 1)).all(), whole.bool().all(), (size <= 1).all()]
    return [bool(holds) for holds in torch.stack(kinds).tolist()]
