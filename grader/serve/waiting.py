"""The lines that a server has taken and that have not ended, in fair order; in memory alone."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from db.batches import Waiting
from grader.pool.fair import FairQueue

MOST_WAITING = 100_000
"""Lines that wait, of all authors together; with more, the server takes none. A choice: some 50 MB of numbers."""
MOST_OF_ONE = 50_000
"""Lines of one owner that wait."""


class QueueFull(Exception):
    """The queue takes no more lines now."""


class WaitingLines:
    """Lines that wait, and lines under way: given out, and not put down. Any thread may call it.

    A line may have ended, as one that is cancelled, before who grades it puts it down.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._queue = FairQueue[Waiting]()
        self._owned = Counter[str]()
        """Lines in the queue by owner."""
        self._under_way: dict[int, Waiting] = {}
        self._open: dict[str, set[int]] = {}
        """The ids of the lines that have not ended, by batch; a batch without any is not in it."""
        self._closed = False

    def __len__(self) -> int:
        """The number of lines that wait."""
        with self._changed:
            return len(self._queue)

    def check_room(self, owner: str, count: int) -> None:
        """Raise QueueFull if so many more lines of an owner are too many."""
        with self._changed:
            if len(self._queue) + count > MOST_WAITING or self._owned[owner] + count > MOST_OF_ONE:
                raise QueueFull

    def add(self, lines: Iterable[Waiting]) -> None:
        """Have lines wait, each behind its author's others."""
        with self._changed:
            for line in lines:
                self._queue.put(line, line.author, line.priority)
                self._owned[line.owner] += 1
                self._open.setdefault(line.batch_id, set()).add(line.id)
            self._changed.notify_all()

    def take(self, within: float) -> Waiting | None:
        """The next line, which is under way from now on; None if there is none within so many seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._queue, within)
            line = None if self._closed else self._queue.take()
            if line is not None:
                self._leave(line)
                self._under_way[line.id] = line
            return line

    def remove(self, unwanted: Callable[[Waiting], bool]) -> list[Waiting]:
        """Take out what waits and is unwanted; the caller ends it."""
        with self._changed:
            gone = self._queue.remove(unwanted)
            for line in gone:
                self._leave(line)
            return gone

    def under_way(self) -> list[Waiting]:
        """Lines that are being graded, or come next."""
        with self._changed:
            return list(self._under_way.values())

    def ended(self, batch_id: str, line_ids: Sequence[int]) -> None:
        """Note that lines of a batch have ended, again or for the first time."""
        with self._changed:
            left = self._open.get(batch_id, set())
            left.difference_update(line_ids)
            if not left:
                self._open.pop(batch_id, None)

    def put_down(self, line: Waiting) -> None:
        """Note that nobody grades a line any more."""
        with self._changed:
            self._under_way.pop(line.id, None)

    def left(self, batch_id: str) -> int:
        """The number of lines of a batch that have not ended."""
        with self._changed:
            return len(self._open.get(batch_id, ()))

    def close(self) -> None:
        """Give out no more lines, to who waits for one either."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _leave(self, line: Waiting) -> None:
        """Account for a line that has left the queue."""
        self._owned[line.owner] -= 1
        if not self._owned[line.owner]:
            del self._owned[line.owner]
