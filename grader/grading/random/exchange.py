"""Tests whether runs of two sides can be exchanged: which elements vary, and which vary together.

Runs of equal distributions can change sides. So a difference between the sides counts if it exceeds those after each of
m random exchanges of their n-th runs. By chance this happens once in m + 1 times, whatever the distribution and the
number of elements.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch

from grader.grading import chance
from grader.grading.compare.blocks import LARGE_BYTES, unravel


class Variation(NamedTuple):
    """The variation of elements over the runs of one side."""

    spreads: dict[int, torch.Tensor]
    """For each dimension: the mean square residual of each run at each index, (runs, extent)."""
    residual: torch.Tensor
    """The residual at the first indices of each dimension, few enough to compare all pairs of runs: (runs, *shape), in
    float32."""

    @staticmethod
    def of(residual: torch.Tensor) -> Variation:
        """The figures of residuals that are bounded by 1, (runs, *shape)."""
        dimensions, squares = range(1, residual.dim()), residual.square()
        others = {one: [other for other in dimensions if other != one] for one in dimensions if residual.shape[one] > 1}
        spreads = {one - 1: (squares.mean(rest) if rest else squares).float() for one, rest in others.items()}
        share = ((LARGE_BYTES >> 14) / max(residual[0].numel(), 1)) ** (1 / max(len(others), 1))
        if share < 1:
            residual = residual[:, *(slice(math.ceil(share * extent)) for extent in residual.shape[1:])]
        return Variation(spreads, residual.float())


def differences(ours: Variation, theirs: Variation, exchanges: int, slight: float) -> dict[str, tuple[str, str]]:
    """The figures that differ, by name: what differs, and a remedy.

    Differences below `slight` do not count: of a mean square residual, and relative to the size of all covariances.
    """
    runs = len(ours.residual)
    generator = torch.Generator().manual_seed(chance.new_seed())
    signs = torch.randint(0, 2, (exchanges, runs), generator=generator).mul_(2).sub_(1).to(ours.residual)
    found = _unequal_spreads(ours, theirs, signs, slight)
    both = torch.cat((ours.residual, theirs.residual))
    both = both - both.mean(0)
    squares = both.square().flatten(1)
    excess = _excess(squares @ squares.T, signs)
    if excess > slight**2:
        what = f"the variances of single elements differ by {math.sqrt(excess):.2g} of their size"
        found["variances"] = what, "check which elements are dropped, and that the scale is 1 / (1 - p), not a count"
    remedy = "draw an independent number for each element for which the reference does: check the offsets"
    shifted, usual = _autocorrelation(both[:runs]), _autocorrelation(both[runs:])
    at = _worst_index(shifted - usual, signs[:, : len(usual)], slight)
    if at is not None:
        shape = both.shape[1:]
        steps = [i - n if 2 * i > n else i for i, n in zip(unravel(at, shape), shape, strict=True)]
        along = [dimension for dimension, step in enumerate(steps) if step]
        apart = f"{abs(steps[along[0]])} apart along dimension {along[0]}" if len(along) == 1 else f"{steps} apart"
        what = f"elements {apart} have a mean square correlation of {float(shifted[:, at].mean()):.2g} where the "
        # Named by its dimensions only: another sample may show another distance, and one distance may differ by chance.
        found[f"elements apart along {along}"] = what + f"reference's have {float(usual[:, at].mean()):.2g}", remedy
    for dimensions in _sets(both.shape[1:]):
        excess = _excess(_covariance_products(both, dimensions), signs)
        if excess > slight:
            names = "dimension" + "s" * (len(dimensions) > 1) + " " + ", ".join(map(str, dimensions))
            what = f"elements along {names} depend on each other in another way: covariances differ by "
            found[f"covariances along {names}"] = what + f"{math.sqrt(excess):.2g} of their size", remedy
    return found


def _unequal_spreads(
    ours: Variation, theirs: Variation, signs: torch.Tensor, slight: float
) -> dict[str, tuple[str, str]]:
    """The indices that vary by another amount, one of each dimension: first where the amounts differ most.

    A column that is never dropped changes every row too, by little.
    """
    found = []
    for dimension, actual in ours.spreads.items():
        expected = theirs.spreads[dimension]
        index = _worst_index(actual - expected, signs, slight)
        if index is not None:
            means = float(actual[:, index].mean()), float(expected[:, index].mean())
            how = "never varies, where the reference's does"
            if means[0] > slight * means[1]:
                how = f"varies by {means[0]:.3g}, where the reference's varies by {means[1]:.3g}"
            what = f"index {index} of dimension {dimension} {how}"
            found.append((min(means) / max(means), f"index of dimension {dimension}", what))
    remedy = "check what is dropped, and its scale, at each index, the first and the last ones too"
    return {figure: (what, remedy) for _, figure, what in sorted(found)}


def _worst_index(difference: torch.Tensor, signs: torch.Tensor, slight: float) -> int | None:
    """The index where runs differ most for their spread, if no exchange makes any index differ as much."""
    scaled = difference / (difference.norm(dim=0) + torch.finfo(difference.dtype).tiny)
    own = scaled.sum(0).abs() * (difference.mean(0).abs() > slight)
    most = max(float((signs @ part).abs().max()) for part in torch.split(scaled, 1024, dim=1))
    return int(own.argmax()) if float(own.max()) > most else None


def _autocorrelation(residual: torch.Tensor) -> torch.Tensor:
    """For pairs of runs the mean product of elements at each distance, which wraps around: (pairs, elements).

    A sign of a correlation that differs between elements cancels in the product of two runs.
    """
    product = residual[0::2] * residual[1::2]
    shape, dimensions = product.shape[1:], tuple(range(1, product.dim()))
    spectrum = torch.fft.rfftn(product, dim=dimensions).abs().square()
    sums = torch.fft.irfftn(spectrum, s=shape, dim=dimensions).flatten(1)
    correlation: torch.Tensor = sums / (sums[:, :1] + torch.finfo(sums.dtype).tiny)
    return correlation


def _excess(products: torch.Tensor, signs: torch.Tensor) -> float:
    """Squared distance between both sides' mean features, relative to the reference's; 0 if an exchange has as much.

    `products` are inner products of the features of all pairs of runs. Those of a run with itself are left out, so that
    the distance is 0 on average where the sides are equal (the maximum mean discrepancy of Gretton et al., 2012).
    """
    runs = signs.shape[1]
    ours, cross, theirs = products[:runs, :runs], products[:runs, runs:], products[runs:, runs:]
    distances = (ours - cross - cross.T + theirs).fill_diagonal_(0)
    own, most = distances.sum(dtype=torch.float64), ((signs @ distances) * signs).sum(1).max()
    size = theirs.sum(dtype=torch.float64) - theirs.diagonal().sum(dtype=torch.float64)
    return float(own / size) if own > most and size > 0 else 0.0


def _sets(shape: torch.Size) -> list[tuple[int, ...]]:
    """Single dimensions, and the last ones together: numbers that a shape's rows, images or batches share."""
    several = [dimension for dimension, extent in enumerate(shape) if extent > 1]
    return list(dict.fromkeys([(one,) for one in several] + [tuple(several[k:]) for k in range(len(several))]))


def _covariance_products(values: torch.Tensor, along: tuple[int, ...]) -> torch.Tensor:
    """For each pair of runs the inner product of their outer products along some dimensions, summed over the others.

    It is the square of an inner product, so covariances of all pairs of elements are compared without being computed.
    """
    runs, shape = values.shape[0], values.shape[1:]
    others = [dimension for dimension in range(len(shape)) if dimension not in along]
    order = [*(1 + other for other in others), 0, *(1 + one for one in along)]
    vectors = values.permute(order).reshape(-1, runs, math.prod(shape[one] for one in along))
    if vectors.shape[2] <= 4:  # many products of short vectors take longer than one of their outer products
        outer = torch.einsum("rni,rnj->nrij", vectors, vectors).flatten(1)
        return outer @ outer.T
    parts = torch.split(vectors, max(LARGE_BYTES // values.element_size() // runs**2, 1))
    return torch.stack([(part @ part.mT).square_().sum(0) for part in parts]).sum(0)
