"""Carries out requests of `grader cancel` in a running `grader grade`."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from grader.batch import Batch


class Cancels:
    """Passes on what arrives before the batch exists, too."""

    def __init__(self) -> None:
        self._early: list[str | None] = []
        self._batch: Batch[None] | None = None
        self._say: Callable[[str], None] = lambda _: None

    def begin(self, batch: Batch[None], say: Callable[[str], None]) -> None:
        """Apply requests to this batch from now on; `say` prints a line for the user."""
        self._batch, self._say = batch, say
        while self._early:
            self.put(self._early.pop(0))

    def put(self, author: str | None) -> None:
        """End what the author has; None: the whole run, as if it were interrupted."""
        if self._batch is None:
            self._early.append(author)
        elif author is None:
            self._say("cancelled by `grader cancel`")
            os.kill(os.getpid(), signal.SIGINT)
        else:
            self._batch.cancel_author(author)
