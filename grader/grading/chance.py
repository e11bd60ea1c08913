"""Draws whatever a grading leaves to chance: seeds, elements, orders, and when a check is made.

A submission must not foresee it, so it comes from the operating system. Tests replace `draw`, to repeat what they did.
"""

import random

draw: random.Random = random.SystemRandom()
"""Read it where it is used, not at import: tests replace it."""


def new_seed() -> int:
    """A seed for a torch generator: 62 bits, so that it is positive and has room for a count above it."""
    return draw.getrandbits(62)
