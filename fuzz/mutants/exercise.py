"""Runs a model as training does, and in the other ways in which a fault may show; returns every result by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

Results = dict[str, torch.Tensor | None]
"""Tensors by what they are; None for a gradient that does not exist."""


def trained(model: torch.nn.Module, seed: int) -> None:
    """Change parameters as training would: constants vary, and in some draws signs differ."""
    with torch.no_grad():
        for value in model.parameters():
            spread = float(value.abs().mean()) * (0.2 if seed % 2 == 0 else 1.5) + 0.05
            value.add_(spread * torch.randn(value.shape).to(value))
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.mul_(1 + 0.3 * torch.rand(buffer.shape).to(buffer)).add_(0.1)


def protocol(model: Any, draws: list[list[Any]], usual: bool) -> Results:
    """A forward and a backward; then, on usual inputs, what the names of the results say."""
    found: Results = {}
    inputs = [leaf(draws[0]), leaf(draws[1])]
    leaves = named_leaves(model, inputs[0])
    before = [value.detach().clone() for value in leaves.values()]
    torch.manual_seed(11)
    outputs = as_tuple(model(*inputs[0]))
    grads = [torch.randn(tuple(one.shape)).to(one) for one in outputs]
    before += [value.clone() for value in grads]
    found |= {f"output[{i}]": one.detach().clone() for i, one in enumerate(outputs)}
    held = [one.detach() for one in outputs]
    found |= gradients(outputs, leaves, grads, "grad")
    if usual:
        torch.manual_seed(12)
        later, new = as_tuple(model(*inputs[1])), named_leaves(model, inputs[1])
        found |= {f"output after [{i}]": one.detach().clone() for i, one in enumerate(later)}
        found |= {f"protocol lifetime output[{i}]": one.clone() for i, one in enumerate(held)}
        found |= gradients(outputs, leaves, grads, "protocol second backward")
        found |= gradients(later, new, grads, "protocol same grad_output")
        if len(outputs) > 1:
            for i, one in enumerate(outputs):
                found |= gradients((one,), leaves, grads[i : i + 1], f"protocol only output[{i}]")
        wide = [one[:1].expand_as(one) if one.dim() else one for one in grads]
        found |= gradients(outputs, leaves, wide, "protocol expanded grad_output")
        found |= gradients(outputs, leaves, [strided(one) for one in grads], "protocol strided grad_output")
        other = [torch.randn(tuple(one.shape)).to(one) for one in outputs]
        both = gradients(outputs, leaves, [a + b for a, b in zip(grads, other, strict=True)], "protocol linear")
        for name, value in gradients(outputs, leaves, other, "protocol linear").items():
            whole = both[name]
            found[name] = None if whole is None or value is None else whole - value
        after = [value.detach() for value in (*leaves.values(), *grads)]
        names = [*leaves, *(f"grad_output[{i}]" for i in range(len(grads)))]
        found |= {f"protocol unchanged {name}": value for name, value in zip(names, after, strict=True)}
        for name, value in zip(names, before, strict=True):
            found[f"protocol unchanged {name}"] = found[f"protocol unchanged {name}"] - value  # type: ignore[operator]
    kept = ((name, value) for name, value in model.named_buffers() if not name.endswith("num_batches_tracked"))
    found |= {f"buffer {name}": value.clone() for name, value in kept}  # nothing depends on that count
    return found


def gradients(
    outputs: tuple[torch.Tensor, ...], leaves: Mapping[str, torch.Tensor], grads: list[torch.Tensor], prefix: str
) -> Results:
    """Gradients of the leaves by name; all None if no output requires a gradient."""
    pairs = [(one, grad) for one, grad in zip(outputs, grads, strict=True) if one.requires_grad]
    if not pairs or not leaves:
        return {f"{prefix} {name}": None for name in leaves}
    values: tuple[torch.Tensor | None, ...] = torch.autograd.grad(
        [one for one, _ in pairs], list(leaves.values()), [g for _, g in pairs], allow_unused=True, retain_graph=True
    )
    return {f"{prefix} {name}": None if v is None else v.clone() for name, v in zip(leaves, values, strict=True)}


def leaf(values: list[Any]) -> list[Any]:
    """Copies that require gradients where the dtype has them."""
    return [value.clone().requires_grad_() if value.is_floating_point() else value for value in values]


def named_leaves(model: torch.nn.Module, inputs: list[Any]) -> dict[str, torch.Tensor]:
    """Inputs and parameters that require a gradient."""
    found = {f"input[{i}]": value for i, value in enumerate(inputs) if value.requires_grad}
    return found | dict(model.named_parameters())


def strided(value: torch.Tensor) -> torch.Tensor:
    """The same values in another layout."""
    return value.t().contiguous().t() if value.dim() == 2 else value.transpose(0, -1).contiguous().transpose(0, -1) \
        if value.dim() else value  # fmt: skip


def as_tuple(value: Any) -> tuple[torch.Tensor, ...]:
    """Outputs as a tuple."""
    return tuple(value) if isinstance(value, tuple | list) else (value,)
