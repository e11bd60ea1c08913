"""Names and descriptions of the tensors that a model owns and returns."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import torch
from torch import nn

from grader.protocol import MOST_ENTRIES, NUMBERS, SPARSE, TensorInfo, dtype_name

_DTYPES: dict[type, torch.dtype] = {kind: getattr(torch, NUMBERS[kind.__name__]) for kind in (bool, int, float)}
"""The dtypes of plain numbers, which a subclass of theirs is not."""
DEPTH = 32
"""Levels of containers in an output. A choice: no model returns as many."""


def flatten(value: object) -> Iterable[tuple[str, object]]:
    """The leaves of nested tuples, lists and dictionaries, named `output['key'][1]` and the like.

    What has more leaves than can be described, or is nested without end, is a leaf of its own.
    """
    leaves = list(itertools.islice(_leaves(value, "output", DEPTH), MOST_ENTRIES + 1))
    ends = not any(isinstance(leaf, tuple | list | dict) for _, leaf in leaves)
    return leaves if ends and len(leaves) <= MOST_ENTRIES else [("output", value)]


def _leaves(value: object, name: str, depth: int) -> Iterator[tuple[str, object]]:
    if isinstance(value, tuple | list) and depth:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{name}[{index}]", depth - 1)
    elif isinstance(value, dict) and depth:
        for key, item in value.items():
            yield from _leaves(item, f"{name}[{key!r}]", depth - 1)
    else:
        yield name, value


def describe(name: str, value: object) -> TensorInfo:
    """Describe any value under a name."""
    name = name[:512]
    if value is None:
        return TensorInfo(name=name, kind="none")
    if is_number(value):
        kind = type(value).__name__
        return TensorInfo(name=name, type_name=kind, shape=(), dtype=NUMBERS[kind])
    if not isinstance(value, torch.Tensor):
        return TensorInfo(name=name, kind="other", type_name=type(value).__name__[:512])
    if value.is_nested:  # of rows with lengths of their own, and without a shape
        return TensorInfo(name=name, kind="other", type_name="nested tensor")
    if value.layout is not torch.strided:
        dtype, shape = dtype_name(value.dtype), tuple(value.shape)
        return TensorInfo(name=name, kind="other", type_name=SPARSE, shape=shape, dtype=dtype)
    return TensorInfo(
        name=name,
        type_name=type(value).__name__[:512],
        shape=tuple(value.shape),
        dtype=dtype_name(value.dtype),
        device=value.device.type,
        requires_grad=value.requires_grad,
        is_leaf=value.is_leaf,
        grad_fn=None if value.grad_fn is None else type(value.grad_fn).__name__[:512],
    )


def is_number(value: object) -> bool:
    """Whether it is a plain number that a dtype holds, which is compared as a tensor without dimensions."""
    return type(value) in _DTYPES and (type(value) is not int or -(1 << 63) <= value < 1 << 63)


def as_tensor(value: object, device: torch.device) -> object:
    """A number as a tensor without dimensions; all else as it is."""
    return torch.tensor(value, dtype=_DTYPES[type(value)], device=device) if is_number(value) else value


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor without its graph and without a subclass, which could run code when it is read."""
    return tensor.detach().as_subclass(torch.Tensor)


def as_dense(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """The gradient with all its elements: that of `nn.Embedding(sparse=True)` is sparse."""
    if gradient is None or gradient.is_nested or gradient.layout is torch.strided:
        return gradient
    return gradient.to_dense()


def state_of(model: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers by name."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}
