"""A queue that serves priorities before each other, and the authors of one priority in turn."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """The highest priority first; within it an item of each author in turn, the oldest first.

    So an author's flood delays others by one item each. Not thread-safe.
    """

    def __init__(self) -> None:
        self._levels: dict[int, OrderedDict[str, deque[T]]] = {}
        """Waiting items by priority and author, in the order of the authors' turns."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[T]:
        for priority in sorted(self._levels, reverse=True):
            for items in self._levels[priority].values():
                yield from items

    def put(self, item: T, author: str, priority: int = 0) -> None:
        """Add an item behind the author's others."""
        self._levels.setdefault(priority, OrderedDict()).setdefault(author, deque()).append(item)
        self._count += 1

    def put_back(self, item: T, author: str, priority: int = 0) -> None:
        """Return an item that was taken: it is the next of its priority."""
        authors = self._levels.setdefault(priority, OrderedDict())
        authors.setdefault(author, deque()).appendleft(item)
        authors.move_to_end(author, last=False)
        self._count += 1

    def take(self, suits: Callable[[T], bool] = lambda _: True) -> T | None:
        """The next item that suits, which leaves the queue; None if none does."""
        for priority in sorted(self._levels, reverse=True):
            authors = self._levels[priority]
            for author, items in authors.items():
                for position, item in enumerate(items):
                    if suits(item):
                        del items[position]
                        authors.move_to_end(author)
                        self._taken(priority, author)
                        return item
        return None

    def remove(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Take out all items that are unwanted."""
        found = []
        for priority, authors in list(self._levels.items()):
            for author, items in list(authors.items()):
                gone = [item for item in items if unwanted(item)]
                if gone:
                    authors[author] = deque(item for item in items if not unwanted(item))
                    self._taken(priority, author, len(gone))
                    found += gone
        return found

    def _taken(self, priority: int, author: str, count: int = 1) -> None:
        """Account for items of an author that have left the queue."""
        self._count -= count
        authors = self._levels[priority]
        if not authors[author]:
            del authors[author]
        if not authors:
            del self._levels[priority]
