"""A place that grades: one device with a process of its own, which may end at any moment."""

from __future__ import annotations

from typing import Literal, Protocol

from grader.catalog.requests import Request
from grader.verdict.models import Device, Environment, Verdict
from grader.verdict.profiles import Profile
from grader.verdict.value import Value


class Ready(Value):
    """The report of a place that has started."""

    environments: dict[Device, Environment]
    """The environment of its verdicts, by device."""
    process: int
    """Its process id."""


class PlaceState(Value):
    """A place, as a status page shows it."""

    name: str
    state: Literal["starting", "ready", "set aside"] = "starting"
    process: int | None = None
    graded: int = 0
    under_way: str | None = None
    """The submission that is being graded."""
    reason: str | None = None
    """Why it is set aside, in one line."""


class PlaceLost(Exception):
    """A place ended, fell silent or lost its device; what it had not answered is graded elsewhere."""

    def __init__(self, reason: str, *, external: bool = False, late: bool = False) -> None:
        super().__init__(reason)
        self.external = external
        """No submission can have caused it, such as the end of a whole node: the one in hand is not blamed."""
        self.late = late
        """The pool ended it, because the request in hand took longer than a grading may."""


class StartFailed(Exception):
    """A place did not start; the message is one line."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        """`final`: the device does not work, so that another try is of no use."""
        super().__init__(reason)
        self.final = final


class Place(Protocol):
    """One device. A thread of the dispatcher calls its methods, and any thread calls `end`."""

    name: str
    device: Device
    """The device for submissions that run on any."""
    depth: int
    """Most requests that it holds: the one in hand, and those behind it that it prepares for."""

    def start(self) -> Ready:
        """Start, or start afresh.

        Raises StartFailed, and a GraderError, which holds for every place unless one of them has started before.
        """

    def send(self, number: int, request: Request) -> None:
        """Hand over a request. It is answered in the order of sending. Raises PlaceLost."""

    def receive(self, seconds: float) -> tuple[int, Verdict | Profile | Exception] | None:
        """The next answer, by its request's number; None if there is none within so many seconds.

        Raises PlaceLost.
        """

    def stop(self, number: int) -> None:
        """Have a request that it holds end at its next job; the answer is Cancelled. Any thread. Never raises.

        It may come before the request, after its answer, or while the place starts afresh without it.
        """

    def end(self) -> None:
        """End its process; what it holds is dropped. Never raises."""
