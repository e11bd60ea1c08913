"""The values of a call: draws, their kinds, and changes by noise or to fewer bits that keep them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeGuard

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from grader.catalog.problem_module import Variant
from grader.executor import TensorSpec
from grader.grading import chance
from grader.grading.compare import ties
from grader.grading.compare.expected import EPSILON, Expected
from grader.grading.compare.narrow_types import spacing
from grader.grading.compare.nonsmooth import PERTURBATION_ULPS, ULPS
from grader.grading.compare.scaling import REDUCED_PRECISION
from grader.grading.compare.together import HOST_ELEMENTS, Pack, by_pack, elementwise
from grader.grading.oracle.case import Case
from grader.grading.oracle.repeated_integers import draw_with_repeats
from grader.machine.backends import backend
from grader.protocol.fewer_bits import Way, of_bits
from grader.verdict.models import Device
from grader.verdict.precision import TF32_BITS

OTHER_DRAWS = 2
"""Further draws of the inputs that must have a property before it counts as the problem's. A choice: an output of
argmax may agree once by chance, and an element behind a ReLU is 0 in all three draws in one of eight cases."""


@contextmanager
def seeded(device: Device, seed: int) -> Iterator[None]:
    """Draw by this seed in the block, on the host and the device, and leave the generators as they were.

    `torch.manual_seed` would format the stack for each kind of device that is not in use: a millisecond per draw.
    """
    with torch.random.fork_rng(devices=backend(device).random_devices()):
        torch.default_generator.manual_seed(seed)
        if backend(device).gpu:
            torch.get_device_module(backend(device).torch_device).manual_seed_all(seed)
        yield


def draw_inputs(
    variant: Variant, device: Device, seed: int, *, repeats: bool = False
) -> tuple[list[object], list[object]]:
    """(constructor arguments, forward arguments) of a variant: tensors on the device, floats in float32.

    With `repeats`, some integers repeat where each may be any (`repeated_integers.py`).
    """
    with seeded(device, seed):
        init_inputs = list(variant.make_init_inputs())
        with torch.device(backend(device).torch_device):
            inputs = [  # drawn on the device unless the problem's code names another
                value.to(backend(device).torch_device) if isinstance(value, torch.Tensor) else value
                for value in (draw_with_repeats(variant.make_inputs) if repeats else variant.make_inputs())
            ]
    return init_inputs, [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]


def draw_cotangents(
    like: Mapping[str, torch.Tensor | TensorSpec | Expected], device: Device, seed: int | None = None
) -> dict[str, torch.Tensor]:
    """A standard normal grad_output for each of these outputs, under this seed or any.

    That of a single number, as of a loss, is moved away from 0 by 0.5: beside other outputs it would say nothing.
    """
    first = chance.new_seed() if seed is None else seed
    place, drawn = backend(device).torch_device, {}
    for each, (name, output) in enumerate(like.items(), first):
        generator = torch.Generator(place).manual_seed(each)
        drawn_as = output.dtype if output.dtype.is_complex else torch.float32
        given = torch.randn(tuple(output.shape), generator=generator, device=place, dtype=drawn_as)
        drawn[name] = (given + given.sgn() / 2 if given.numel() == 1 else given).to(output.dtype)
    return drawn


def is_float(value: object) -> TypeGuard[torch.Tensor]:
    """Whether the value is a floating-point tensor, of more than eight bits, which need scales."""
    return isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1


def is_differentiable(value: object) -> TypeGuard[torch.Tensor]:
    """Whether the value is a floating-point or complex tensor."""
    return is_float(value) or (isinstance(value, torch.Tensor) and value.is_complex())


def perturbed(inputs: Sequence[object], ulps: float = PERTURBATION_ULPS) -> list[object]:
    """Inputs with relative noise of `ulps` units of float32's epsilon.

    Relative noise keeps exact zeros, where a candidate must follow the reference's convention, and masks have none. A
    tensor of 16 bits gets noise of half its own spacing from ULPS units on; with less, rounding leaves it unchanged.
    """
    found = list(inputs)
    moved = [index for index, value in enumerate(inputs) if is_differentiable(value)]
    real = [as_real(inputs[index]) for index in moved]
    kinds = values_of_each(real)
    sizes = [max(ulps * EPSILON, spacing(value.dtype) / 2 if ulps >= ULPS else 0.0) for value in real]
    sizes = [0.0 if kind.mask else size for kind, size in zip(kinds, sizes, strict=True)]
    for index, value in zip(moved, noisy_each(real, sizes, kinds), strict=True):
        found[index] = as_before(value, inputs[index])
    return found


def with_moved(case: Case, operand: str, relative: float = REDUCED_PRECISION) -> Case:
    """The case with relative noise on one operand, of a size that no tolerance hides."""
    (moved,) = perturbed([case.operand(operand)], relative / EPSILON)
    assert isinstance(moved, torch.Tensor)
    return case.with_operand(operand, moved)


def perturbed_state(state: Mapping[str, torch.Tensor], ulps: float = PERTURBATION_ULPS) -> dict[str, torch.Tensor]:
    """Parameters and buffers with the same noise as `perturbed` adds."""
    return dict(zip(state, perturbed(list(state.values()), ulps), strict=True))  # type: ignore[arg-type]


def ties_broken(inputs: Sequence[object], turn: int, ulps: float) -> list[object]:
    """Inputs with the same noise, which orders equal elements in another way in each turn."""

    def one(position: int, value: object) -> object:
        if not is_float(value) or is_mask(value) or not ties.has_ties(value):
            return perturbed([value], ulps)[0]
        kind = values_of(value)
        sign = 1 if kind.whole else -1 if kind.unit else 0
        return ties.broken(value, turn, ulps * EPSILON, sign=sign, position=position)

    return [one(position, value) for position, value in enumerate(inputs)]


class ValueKinds(NamedTuple):
    """The kinds of values that a tensor has; all False for an empty one."""

    mask: bool
    """All elements are 0, 1 or -1. A model may compare such elements with 1, so noise would change their meaning."""
    whole: bool
    """All elements are whole numbers, which may be codes or indices."""
    unit: bool
    """All elements are in [-1, 1]. They may be probabilities or cosines, and a function may reject larger ones."""


def noisy_each(
    values: Sequence[torch.Tensor], sizes: Sequence[float], kinds: Sequence[ValueKinds]
) -> list[torch.Tensor]:
    """Copies with relative normal noise of these sizes.

    By its kind, no whole number shrinks, because 2.9 truncated to an index is not 3, and none leaves [-1, 1].
    """
    groups: defaultdict[tuple[float, bool, bool], list[int]] = defaultdict(list)
    for index, (size, kind) in enumerate(zip(sizes, kinds, strict=True)):
        groups[size, kind.whole, kind.unit].append(index)
    found: dict[int, torch.Tensor] = {}
    for (size, whole, unit), chosen in groups.items():
        noisy = partial(_noisy, size=size, whole=whole, unit=unit)
        found.update(zip(chosen, elementwise(noisy, [values[index] for index in chosen]), strict=True))
    return [found[index] for index in range(len(values))]


def _noisy(flat: torch.Tensor, *, size: float, whole: bool, unit: bool) -> torch.Tensor:
    if not size:
        return flat
    noise = torch.randn_like(flat, dtype=torch.promote_types(flat.dtype, torch.float32))
    moved = (flat * (1 + size * (noise.abs_() if whole else noise))).to(flat.dtype)
    return moved.clamp_(-1, 1) if unit else moved


_known: MutableMapping[torch.Tensor, tuple[int, ValueKinds]] = WeakTensorKeyDictionary()
"""Values by tensor, with its version: noise is added to each parameter many times."""


def values_of_each(tensors: Sequence[torch.Tensor]) -> list[ValueKinds]:
    """The kinds of values that each tensor has; those of small ones that are seen first, in one pass."""
    versions = [_known.get(tensor, (-1, None))[0] for tensor in tensors]
    new = [tensor for tensor, version in zip(tensors, versions, strict=True) if version != tensor._version]

    def packed(positions: list[int]) -> list[ValueKinds]:
        pack = Pack([new[position] for position in positions])
        differs = [pack.largest((~holds).float()) for holds in _kinds(pack.flat)]
        return [ValueKinds(*(not difference for difference in row)) for row in torch.stack(differs).T.tolist()]

    for tensor, values in zip(new, by_pack(new, lambda position: _values_of_one(new[position]), packed), strict=True):
        _known[tensor] = tensor._version, values
    return [_known[tensor][1] for tensor in tensors]


def values_of(value: torch.Tensor) -> ValueKinds:
    """The kinds of values that a tensor has."""
    return values_of_each([value])[0]


def is_mask(value: torch.Tensor) -> bool:
    """Whether a tensor of floats is a mask: see `ValueKinds`."""
    return value.is_floating_point() and values_of(value).mask


def _values_of_one(value: torch.Tensor) -> ValueKinds:
    """The first elements decide for most tensors without a pass over the rest."""
    flat = value.reshape(-1)
    found = [True, True, True] if flat.numel() else [False, False, False]
    for part in (flat[:HOST_ELEMENTS], flat[HOST_ELEMENTS:]):
        if part.numel() and any(found):
            holds = torch.stack([kind.all() for kind in _kinds(part)]).tolist()
            found = [a and b for a, b in zip(found, holds, strict=True)]
    return ValueKinds(*found)


def _kinds(flat: torch.Tensor) -> list[torch.Tensor]:
    """Whether each element has the fields of `ValueKinds`."""
    if flat.is_floating_point() and flat.itemsize == 1:
        flat = flat.float()
    size = flat.abs() if flat.dtype is not torch.bool else flat
    whole = flat == flat.round() if flat.is_floating_point() else torch.full_like(flat, not flat.is_complex())
    return [(flat == 0) | (size == 1), whole.bool(), size <= 1]


def as_real(value: object) -> torch.Tensor:
    """The tensor; a complex one with a last dimension of 2 for real and imaginary parts."""
    assert isinstance(value, torch.Tensor)
    return torch.view_as_real(value.resolve_conj()) if value.is_complex() else value


def as_before(value: torch.Tensor, original: object) -> torch.Tensor:
    """The tensor, complex again if it was made of a complex one by `as_real`."""
    was_complex = isinstance(original, torch.Tensor) and original.is_complex()
    return torch.view_as_complex(value.clone(memory_format=torch.contiguous_format)) if was_complex else value


def cut_each(values: Iterable[Any], bits: int = TF32_BITS) -> list[Any]:
    """Values with float32 tensors cut to so many significant bits, as tensor cores do.

    Nothing leaves its range, changes its sign or becomes zero.
    """
    return _of_bits(values, bits, "cut")


def rounded_each(values: Iterable[Any]) -> list[Any]:
    """Values with float32 tensors rounded to TensorFloat-32's 10 bits of mantissa."""
    return _of_bits(values, TF32_BITS, "away")


def _of_bits(values: Iterable[Any], bits: int, way: Way) -> list[Any]:
    """Values in which float32 tensors have so many of their bits."""
    found = list(values)
    chosen = [i for i, value in enumerate(found) if isinstance(value, torch.Tensor) and value.dtype == torch.float32]
    new = elementwise(lambda flat: of_bits(flat, bits, way), [found[i] for i in chosen])
    for index, value in zip(chosen, new, strict=True):
        found[index] = value
    return found
