"""Time by the speed of the core at hand, so that a bound holds on a slow machine as on a fast one."""

import time
from collections.abc import Callable

COUNT = 300_000
PER_SECOND = 60_000_000
"""What a core of 2025 counts to in a second, for which bounds are meant."""


def seconds(action: Callable[[], object]) -> float:
    """The processor's seconds that an action takes, as on a core that counts to PER_SECOND in one."""
    before = _counting()
    started = time.process_time()
    action()
    taken = time.process_time() - started
    return taken * (COUNT / PER_SECOND) / max(before, _counting())


def _counting() -> float:
    started = time.process_time()
    for _ in range(COUNT):
        pass
    return time.process_time() - started
