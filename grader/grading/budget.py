"""Divides the time of a grading over its stages, and draws the checks that fit.

The probes of the forward, the post-checks of the backward and the rounds of timing get a third each. Before the first
of a stage's checks, the time of a plain call says how many of them fit; which ones is drawn, and others follow while
there is time, so that no submission can rely on a check being left out. What finds a wrong forward, a missing backward
and a wrong gradient of the plain product is no part of this: it always runs. So the time is a target, and no limit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from grader.grading import chance
from grader.grading.messages import diagnose
from grader.options import FULL_SECONDS
from grader.verdict.models import Diagnosis

STAGES = ("forward", "backward", "timing")
"""Stages that share the time."""
PRODUCTS = 100
"""Forwards and backwards of the reference that a grading should have time for; a slower reference has one draw of each
size. A choice: a --quick grading runs some sixty on either side."""
TRIES = 2
"""Calls that are made again before checks are left out. A choice: few beside the checks that run in any case."""
LEAST_SECONDS = 1e-4
"""No call takes less. On a busy host, both processes may have waited at once, so that nothing is left of its time."""
_Check = TypeVar("_Check")


@dataclass(frozen=True)
class Budget:
    """The time that the checks of one grading should take, without builds and starts."""

    seconds: float = FULL_SECONDS

    @property
    def stage_seconds(self) -> float:
        """Seconds of one stage."""
        return self.seconds / len(STAGES)

    @property
    def experiment_seconds(self) -> float:
        """Seconds for the parts of one experiment of the backward that are as many as there is time for."""
        return self.stage_seconds / 2

    @property
    def product_seconds(self) -> float:
        """Seconds of a forward and backward from which the reference has fewer runs."""
        return self.seconds / PRODUCTS


class Drawn(Generic[_Check]):
    """Checks to iterate over once: those that should fit into a time, then others while there is time.

    All of them in their order if they should fit; else a random choice of at least `fewest`, and the others in a random
    order. One of a larger weight comes first more often (Efraimidis and Spirakis, Information Processing Letters 97,
    2006). An expected time is an upper bound, since checks share jobs.
    """

    def __init__(
        self,
        checks: Sequence[_Check],
        seconds_each: float,
        seconds: float,
        clock: Callable[[], float],
        *,
        fewest: int = 1,
        weights: Sequence[float] | None = None,
    ) -> None:
        self._seconds, self._clock = seconds, clock
        fitting = min(seconds / max(seconds_each, 1e-9), len(checks))
        count = max(fewest, int(fitting))
        keys = [chance.draw.random() ** (1 / weight) for weight in weights or [1.0] * len(checks)]
        order = sorted(range(len(checks)), key=keys.__getitem__, reverse=True)
        self._chosen = [checks[index] for index in sorted(order[:count])]
        self._others = [checks[index] for index in order[count:]]
        self.begun: list[_Check] = []
        """Those that were asked for so far."""
        self.left_out: list[_Check] = []
        """Those for which there was no time."""

    def __iter__(self) -> Iterator[_Check]:
        end = self._clock() + self._seconds
        for check in self._chosen:
            self.begun.append(check)
            yield check
        for number, check in enumerate(self._others):
            if self._clock() > end:
                self.left_out = self._others[number:]
                return
            self.begun.append(check)
            yield check


class Stopwatch:
    """Keeps the shortest time of the plain calls of each variant."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._shortest: dict[str, float] = {}

    @contextmanager
    def of(self, variant: str) -> Iterator[None]:
        """Take the time of the block, which is one call."""
        started = self._clock()
        yield
        took = max(LEAST_SECONDS, self._clock() - started)
        self._shortest[variant] = min(took, self._shortest.get(variant, took))

    def steady(self, variant: str, limit: float, call: Callable[[], object]) -> float:
        """Seconds of the variant's shortest call; above `limit`, TRIES more calls at most are made.

        A first call loads kernels or compiles, and any may be held up by other work on the host.
        """
        for _ in range(TRIES):
            if self._shortest.get(variant, math.inf) <= limit:
                break
            with self.of(variant):
                call()
        return self._shortest[variant]


def left_out(what: str, codes: Sequence[str], seconds_each: float) -> list[Diagnosis]:
    """The information that these checks were left out because each takes so long."""
    if not codes:
        return []
    text = (
        f"at this size, time was too short for the {what} {', '.join(codes)}, which were chosen at random; each takes "
        f"about {seconds_each:.2g} s"
    )
    return [diagnose("checks_left_out", text, severity="info")]
