"""Messages between a pool and its places, as lines of JSON."""

from __future__ import annotations

from grader.catalog.requests import Request
from grader.errors import Cancelled, GraderError, NotGraded, SandboxUnavailable, UserError
from grader.machine.host import CoreShare
from grader.options import GraderOptions
from grader.pool.place import Ready, StartFailed
from grader.verdict.models import Device, Verdict
from grader.verdict.profiles import Profile
from grader.verdict.value import Value

_KINDS = {kind.__name__: kind for kind in (GraderError, SandboxUnavailable, UserError, NotGraded, Cancelled)}


class GradeOrder(Value):
    """A request with its number. The problem is in it with its source, so that the place needs no file."""

    number: int
    request: Request


class Stop(Value):
    """A request that is to end at its next job; its answer says so."""

    stop: int
    """Its number."""


class Setup(Value):
    """The first line to a process."""

    engine: str
    """`module:name` of a function of the options that returns a grader."""
    options: GraderOptions
    device: Device
    """The device to check at the start."""
    turns: str | None = None
    """The file by which the processes of a machine take turns."""
    cores: CoreShare | None = None
    """None: all, as for a single process."""
    log_level: int | None = None
    """Least level of records of the logger `grader` that come back; None: none do."""


class Trouble(Value):
    """An exception, by the kind that a caller may catch."""

    kind: str
    message: str

    @classmethod
    def of(cls, error: Exception) -> Trouble:
        """The message for an exception."""
        kind = next((name for name, kind in reversed(_KINDS.items()) if isinstance(error, kind)), "GraderError")
        return cls(kind=kind, message=str(error) or type(error).__name__)

    def exception(self) -> GraderError:
        """The exception again."""
        return _KINDS.get(self.kind, GraderError)(self.message)


class Answer(Value):
    """One line from a process: one field besides `number` is set."""

    number: int | None = None
    ready: Ready | None = None
    verdict: Verdict | None = None
    profile: Profile | None = None
    trouble: Trouble | None = None
    """With a number, the exception of that request; without one, why the place did not start."""
    device_fault: str | None = None
    """Why the device no longer works."""
    log: dict[str, object] | None = None
    """Attributes of a record that the process logged."""

    @classmethod
    def of(cls, number: int, result: Verdict | Profile | Exception) -> Answer:
        """The answer to a request."""
        if isinstance(result, Verdict):
            return cls(number=number, verdict=result)
        if isinstance(result, Profile):
            return cls(number=number, profile=result)
        return cls(number=number, trouble=Trouble.of(result))

    def started(self) -> Ready:
        """The report of a place that has started. Raises StartFailed, or what it could not start for."""
        if self.trouble is not None:
            raise self.trouble.exception()
        if self.ready is None:
            raise StartFailed(self.device_fault or "did not start", final=True)
        return self.ready

    def result(self) -> tuple[int, Verdict | Profile | Exception]:
        """The number of a request, and what came of it."""
        assert self.number is not None, "an answer has its request's number"
        found = self.verdict or self.profile
        if found is not None:
            return self.number, found
        assert self.trouble is not None, "an answer has a verdict or a profile, or says why not"
        return self.number, self.trouble.exception()
