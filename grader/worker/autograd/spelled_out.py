"""Functions of several steps as these steps, each of which autograd then differentiates."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode


def _layer_norm(
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-05,
) -> torch.Tensor:
    dims = tuple(range(-len(normalized_shape), 0))
    return affine(normed(input, dims, eps), weight, bias)


def _group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-05,
) -> torch.Tensor:
    grouped = normed(input.reshape(input.shape[0], num_groups, -1), (-1,), eps).reshape(input.shape)
    return affine(grouped, *_each_of_channels(input, weight, bias))


def _batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> torch.Tensor:
    """Without the update of running statistics, which no gradient needs."""
    if training or running_mean is None or running_var is None:
        value = normed(input, (0, *range(2, input.dim())), eps)
    else:
        mean, variance = (_of_channels(input, statistic) for statistic in (running_mean, running_var))
        value = (input - mean) * torch.rsqrt(variance + eps)
    return affine(value, *_each_of_channels(input, weight, bias))


def _instance_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None = None,
    running_var: torch.Tensor | None = None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> torch.Tensor:
    """Without the update of running statistics, as a batch norm."""
    if not use_input_stats:
        return _batch_norm(input, running_mean, running_var, weight, bias, False, momentum, eps)
    return affine(normed(input, tuple(range(2, input.dim())), eps), *_each_of_channels(input, weight, bias))


def _normalize(
    input: torch.Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: torch.Tensor | None = None
) -> torch.Tensor:
    return torch.div(input, input.norm(p, dim, keepdim=True).clamp_min(eps), out=out)


def normed(value: torch.Tensor, dims: tuple[int, ...], eps: float) -> torch.Tensor:
    """The tensor without its mean and with a variance of 1 along these dimensions."""
    centred = value - value.mean(dims, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)


def affine(value: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    """The tensor times the weight plus the bias, where there are any."""
    scaled = value if weight is None else value * weight
    return scaled if bias is None else scaled + bias


def _of_channels(input: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """A tensor with a number for each channel, in a shape that broadcasts to the input's."""
    return value.view(1, -1, *[1] * (input.dim() - 2))


def _each_of_channels(input: torch.Tensor, *values: torch.Tensor | None) -> list[torch.Tensor | None]:
    return [value if value is None else _of_channels(input, value) for value in values]


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    if enable_gqa:
        key, value = (tensor.repeat_interleave(query.shape[-3] // tensor.shape[-3], -3) for tensor in (key, value))
    scores = query @ key.transpose(-2, -1) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(hidden, -math.inf)
    if attn_mask is not None:
        masks = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if masks else scores + attn_mask
    weights = torch.softmax(scores, -1)
    return (functional.dropout(weights, dropout_p) if dropout_p else weights) @ value


def _gru_cell(
    input: torch.Tensor,
    hx: torch.Tensor,
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> torch.Tensor:
    of_input = _gates(input, w_ih, b_ih, 3)
    of_state = _gates(hx, w_hh, b_hh, 3)
    reset, update = (torch.sigmoid(one + other) for one, other in zip(of_input[:2], of_state[:2], strict=True))
    new = torch.tanh(of_input[2] + reset * of_state[2])
    return (1 - update) * new + update * hx


def _lstm_cell(
    input: torch.Tensor,
    hx: Sequence[torch.Tensor],
    w_ih: torch.Tensor,
    w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None,
    b_hh: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    hidden, cell = hx
    gates = zip(_gates(input, w_ih, b_ih, 4), _gates(hidden, w_hh, b_hh, 4), strict=True)
    taken, forgotten, new, shown = (one + other for one, other in gates)
    cell = torch.sigmoid(forgotten) * cell + torch.sigmoid(taken) * torch.tanh(new)
    return torch.sigmoid(shown) * torch.tanh(cell), cell


def _gates(value: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, count: int) -> Sequence[torch.Tensor]:
    """The parts of a product, each with its part of the bias."""
    parts = (value @ weight.T).chunk(count, -1)
    return (
        parts if bias is None else [part + bias_part for part, bias_part in zip(parts, bias.chunk(count), strict=True)]
    )


def _cross_entropy(
    input: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """For targets that are classes; others, and the two old arguments, are left to PyTorch."""
    if target.is_floating_point() or size_average is not None or reduce is not None:
        return functional.cross_entropy(
            *(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)
        )
    dim = min(input.dim() - 1, 1)
    logarithms, kept = input - input.logsumexp(dim, keepdim=True), target != ignore_index
    classes = target.masked_fill(~kept, 0)

    def summed(losses: torch.Tensor) -> torch.Tensor:
        losses = losses.masked_fill(~kept, 0)
        if reduction != "mean":
            return losses.sum() if reduction == "sum" else losses
        # In a shape of its own, so that a mistake in it has a name of its own.
        counted = kept if weight is None else weight[classes][None] * kept[None]
        return losses.sum() / counted.sum()

    chosen = -logarithms.gather(dim, classes.unsqueeze(dim)).squeeze(dim)
    loss = summed(chosen if weight is None else chosen * weight[classes])
    if not label_smoothing:
        return loss
    each = logarithms if weight is None else logarithms * weight.view(-1, *[1] * (input.dim() - 1 - dim))
    smooth = summed(-each.sum(dim)) / input.shape[dim]
    return (1 - label_smoothing) * loss + label_smoothing * smooth


STEPS: dict[Callable[..., Any], Callable[..., Any]] = {
    functional.layer_norm: _layer_norm,
    functional.group_norm: _group_norm,
    functional.batch_norm: _batch_norm,
    functional.instance_norm: _instance_norm,
    functional.normalize: _normalize,
    functional.scaled_dot_product_attention: _attention,
    functional.cross_entropy: _cross_entropy,
    torch.gru_cell: _gru_cell,
    torch.lstm_cell: _lstm_cell,
}
"""The steps of each function, with its signature."""


class SpelledOut(TorchFunctionMode):
    """Calls the steps in place of the functions."""

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return STEPS.get(function, function)(*args, **(kwargs or {}))
