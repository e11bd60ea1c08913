"""Memory is quiet once copies run at full speed, or when they have been slow for so long that this is their speed."""

import itertools

import torch

from grader.executor import quiet_memory
from grader.executor.quiet_memory import QuietMemory


class Copies(QuietMemory):
    """Copies that take these milliseconds, one after another."""

    def __init__(self, *took_ms):
        super().__init__()
        self._blocks = [torch.empty(1), torch.empty(1)]
        self._left = iter(took_ms)
        self.made = 0

    def _copy_ms(self):
        self.made += 1
        return next(self._left)


def test_it_waits_until_copies_are_as_fast_as_they_were():
    memory = Copies(1.0, 1.11, 1.12, 1.11, 1.01, 1.03)
    for made in (1, 5, 6):
        memory.wait()
        assert memory.made == made


def test_what_stays_slow_is_the_memorys_usual_speed(monkeypatch):
    monkeypatch.setattr(quiet_memory, "MOST_SECONDS", 0.0)
    memory = Copies(1.0, *itertools.repeat(1.5, 4))
    memory.wait()
    memory.wait()
    assert memory.made == 3, "the second slow copy is as fast as the first"
    memory.wait()
    assert memory.made == 4


def test_without_memory_to_copy_nothing_is_waited_for(monkeypatch):
    def refused(*_, **__):
        raise torch.cuda.OutOfMemoryError

    monkeypatch.setattr(torch, "empty", refused)
    QuietMemory().wait()
