"""Moves parameters and buffers as training would: to other sizes and, where possible, signs.

A kernel that applies ReLU before a weight instead of behind it, takes the weight's absolute value, or computes PReLU as
`max(x, a * x)` is right as long as the parameter keeps the value that the constructor gives it. A reference may need
that sign, as for a variance, so the first look at it finds out which parameters may change it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

import torch

from grader.errors import ReferenceRefused
from grader.grading.compare.together import each_on_host
from grader.grading.oracle.traits import Traits
from grader.grading.oracle.values import as_before, as_real, is_float

SMALL = 1e-2
"""Largest absolute value of a constant that a parameter starts with and that training is sure to change. A choice:
above LayerScale's 1e-6 and 1e-5, below any scale that a trained model may keep."""
Freedom = Literal["near", "spread", "signed"]
"""How far a parameter moves: by a tenth, to other sizes, or to other sizes and signs."""
State = Mapping[str, torch.Tensor]
Outputs = Mapping[str, torch.Tensor]


class _Attempt(NamedTuple):
    traits: Traits
    state: dict[str, torch.Tensor]
    runs: Sequence[Outputs]

    @property
    def useless(self) -> int:
        """The number of elements that say nothing about a submission."""
        return sum(map(_useless, self.runs[0].values()))


def as_trained(state: State, traits: Traits, draw: int = 0, *, everything: bool = False) -> dict[str, torch.Tensor]:
    """Parameters and buffers changed as by some steps of training, except `traits.tables`.

    A submission that still uses the values from construction then gives other results. Draw 0 moves tensors with all
    elements equal, such as the weight and statistics of a norm or a branch that starts at zero: unchanged, such a
    tensor would have no effect, and a submission that omits it would be correct. It moves parameters of one sign too,
    and what is zero in a parameter with a gradient, as the row of `padding_idx` is. Later draws move `everything`;
    every other one keeps these zeros, and has the integers of another seed.
    """
    names, learned, varies = list(state), traits.learned, everything or draw > 0
    filled = {info.name for info in traits.parameters if info.requires_grad and draw % 2 == 0} & learned

    def one(at: int, value: torch.Tensor) -> torch.Tensor:
        name = names[at]
        limit = "near" if name in traits.bounds else traits.limits.get(name, "signed")
        if name in traits.tables:
            return value
        value = _filled(value, 0.1 if limit == "near" else 1.0) if name in filled else value
        return _trained(value, limit, draw, learned=name in learned, varies=varies)

    trained = traits.in_order(dict(zip(names, each_on_host(one, list(state.values())), strict=True)))
    return {**trained, **traits.integers} if draw % 2 else trained


def first_training(
    state: State, traits: Traits, runs_for: Callable[[State], Sequence[Outputs]]
) -> tuple[Traits, dict[str, torch.Tensor], Sequence[Outputs]]:
    """(the traits with `limits`, a state that moves so far, the outputs of one or more runs for it).

    The reference decides: parameters that make it fail, or its outputs infinite or constant, move less. Raises
    ProblemError if the reference fails for parameters near those of the constructor.
    """

    def attempt(limits: Mapping[str, Freedom]) -> _Attempt:
        limited = traits._replace(limits=limits)
        trained = as_trained(state, limited, everything=True)
        return _Attempt(limited, trained, runs_for(trained))

    def tried(limits: Mapping[str, Freedom], useless: int) -> _Attempt | None:
        """The attempt, if no more than so many elements are useless."""
        try:
            found = attempt(limits)
        except ReferenceRefused:
            return None
        return found if found.useless <= useless else None

    free = tried({}, 0)
    if free is not None:
        return free
    all_near: dict[str, Freedom] = dict.fromkeys(state, "near")
    near = attempt(all_near)
    free = tried({}, near.useless)
    if free is not None:
        return free
    kept: dict[str, Freedom] = {name: "spread" for name in state if name not in traits.learned}
    free = tried(kept, near.useless)
    if free is not None:
        return free
    limits = dict(all_near)
    wider: tuple[Freedom, ...] = ("signed", "spread")
    for name in filter(traits.learned.__contains__, state):
        for wanted in wider:
            if tried({**all_near, name: wanted}, near.useless) is not None:
                limits[name] = wanted
                break
    return tried(limits, near.useless) or near


def positive(state: State, before: State, names: frozenset[str]) -> dict[str, torch.Tensor]:
    """The state with the constructor's signs for the named parameters.

    An element that is 0 there, and a complex tensor, keep theirs.
    """
    return {
        name: torch.where(before[name] == 0, value, value.abs() * before[name].sign())
        if name in names and not value.is_complex()
        else value
        for name, value in state.items()
    }


def ascends(value: torch.Tensor) -> bool:
    """Whether the elements of each row ascend, as edges of bins do."""
    return is_float(value) and value.dim() > 0 and value.shape[-1] > 1 and bool((value.diff(dim=-1) >= 0).all())


def zeros_or_ones(value: torch.Tensor) -> bool:
    """Whether all elements are 0, or all are 1."""
    return value.numel() > 0 and bool((value == 0).all() or (value == 1).all())


def _useless(value: torch.Tensor) -> int:
    """The number of elements that are not finite; all of them if they are all equal."""
    if not value.is_floating_point() or value.numel() < 2:
        return int(value.is_floating_point() and not bool(value.isfinite().all()))
    if bool((value == value.reshape(-1)[0]).all()):
        return value.numel()
    return int((~value.isfinite()).sum())


def _filled(value: torch.Tensor, size: float) -> torch.Tensor:
    """The tensor with `size` times some of its other elements in place of zeros, unless all are zero.

    Together they have no larger norm than the others, so that an identity stays about as large as it is. As few zeros
    as a uniform draw of float32 has by chance stay: gigabytes of parameters would be copied for them.
    """
    if not (is_float(value) or value.is_complex()):
        return value
    zeros = (value == 0).flatten().nonzero().squeeze(1)
    count, others = zeros.numel(), value.numel() - zeros.numel()
    if not others or count <= 4 * torch.finfo(torch.float32).eps * value.numel():
        return value
    # Where most are zero, the others are copied; elsewhere a choice that is zero is made again.
    among = value.flatten() if count < others else value[value != 0]
    chosen = among[torch.randint(among.numel(), (count,), device=value.device)]
    while (again := (chosen == 0).nonzero().squeeze(1)).numel():
        chosen[again] = among[torch.randint(among.numel(), (again.numel(),), device=value.device)]
    filled = value.flatten().clone()
    filled[zeros] = size * min(1.0, (others / count) ** 0.5) * chosen
    return filled.view(value.shape)


def _trained(value: torch.Tensor, limit: str, draw: int, *, learned: bool, varies: bool) -> torch.Tensor:
    """One tensor after some steps of training; one of several values and signs only if it `varies`."""
    if value.is_complex():
        return as_before(_trained(as_real(value), limit, draw, learned=learned, varies=varies), value)
    if not is_float(value) or not value.numel():
        return value
    first = float(value.reshape(-1)[0])
    same, *signs = torch.stack([mask.all() for mask in (value == first, value >= 0, value <= 0)]).tolist()
    if same:
        if limit == "near":
            noise = 0.1 * torch.randn_like(value)
            if not learned and not first:  # as a statistic that no forward makes negative
                return noise.abs()
            grows = learned and 0 < abs(first) <= SMALL
            return value + noise.abs() * value.sign() if grows else value * (1 + noise) if first else noise
        return _spread(value, first, draw, learned=learned, signed=limit == "signed")
    flips = learned and any(signs) and limit == "signed"
    if not (varies or flips):
        return value
    moved = value * (1 + 0.1 * torch.randn_like(value))
    return moved * (torch.randint_like(value, 2) * 2 - 1) if flips else moved


def _spread(value: torch.Tensor, first: float, draw: int, *, learned: bool, signed: bool) -> torch.Tensor:
    """A constant after training: small and large elements, of both signs for a parameter.

    The elements alternate between four kinds, so that a vector has all of them, and a single number another one in the
    next draw. The large elements of a vector of parameters exceed 1. A constant close to zero grows to 0.1: the branch
    that it scales, and any error there, would be lost in rounding. A buffer that starts as a constant is often a
    variance: small elements show which epsilon is added to it, and it keeps its sign. One that starts at zero has both
    signs, unless it may not be `signed`.
    """
    kinds = (torch.randperm(value.numel(), device=value.device).view(value.shape) + draw) % 4
    large, unit = (kinds == 1) | (kinds == 2), torch.rand_like(value)
    size = abs(first) if abs(first) > (SMALL if learned else 0) else 0.1
    vector = sum(extent > 1 for extent in value.shape) <= 1
    if learned or not first:
        top = max(size, 1.0) if first and vector else size
        magnitude = torch.where(large, top * (1 + unit), size * (1 - unit / 2))
    else:
        magnitude = size * torch.where(kinds == 0, SMALL * (1 + unit), 1 + unit)
    negative = (kinds % 2 == 0) & signed & (learned or not first)
    return torch.where(negative, -magnitude, magnitude) * (-1 if first < 0 else 1)
