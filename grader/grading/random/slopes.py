"""Slopes of a forward under one seed, and which of them a backward can be held against."""

from __future__ import annotations

from collections.abc import Sequence

import torch

STEP = 1e-3
"""Step relative to an operand's RMS. Rounding in float32 adds 1e-4 to a derivative, curvature 1e-6. Steps of STEP and
2 STEP are compared."""
STEPS = (2, -2, 1, -1, 0)
"""Multiples of STEP at which the forward runs."""
BEND_NOISE = 6.0
"""Rounding of a difference of bends, in that of a derivative: the root of 70 over that of 2."""
TOLERANCE = 5e-3
"""Relative error of a directional derivative: 50 times rounding; a missing scale of dropout is off by p."""


def derivatives(at: Sequence[torch.Tensor], noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(derivatives of a function by its values at STEPS, which of them hold), where rounding adds `noise`.

    Slopes of both steps must agree. They do where a non-smooth point in the middle, such as a ReLU's, halves both, but
    there twice the step bends the function twice as much, and elsewhere four times.
    """
    up2, down2, up, down, middle = at
    coarse, fine = (up2 - down2) / (4 * STEP), (up - down) / (2 * STEP)
    unlike = (up2 - 2 * middle + down2) - 4 * (up - 2 * middle + down)
    bends = unlike.abs() / (2 * STEP) > TOLERANCE * fine.abs() + BEND_NOISE * noise
    return fine, ((coarse - fine).abs() <= TOLERANCE * fine.abs() + noise) & ~bends
