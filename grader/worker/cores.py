"""The cores that this process may use, and where on them its main thread is.

OpenMP's threads wait for more work by spinning, for milliseconds. A thread that is woken on such a core waits for the
scheduler's next tick, milliseconds away; so main thread and referee, who take turns, keep to the first core, and the
others find the rest free.
"""

from __future__ import annotations

import os

CORES = os.sched_getaffinity(0)


def use_all() -> None:
    """For the main thread, whose cores are inherited by the threads and processes that it starts."""
    os.sched_setaffinity(0, CORES)


def use_first() -> None:
    """For the main thread. Not before OpenMP has started its threads, which would all be there too."""
    os.sched_setaffinity(0, {min(CORES)})
