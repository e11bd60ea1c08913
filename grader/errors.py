"""The grader's exceptions. A failure of a submission is a verdict, never an exception.

GraderError
├── UserError
│   ├── ProblemError
│   │   ├── ReferenceLost
│   │   ├── ReferenceOutOfMemory
│   │   └── ReferenceRefused
│   └── StoreError
│       └── StoreBusy
├── ClaimLost
├── DeviceError
├── NotGraded
│   └── Cancelled
├── ReferenceKilled
└── SandboxError
    └── SandboxUnavailable

The command line prints the message of any of them as one line. It exits with 2 for a UserError and with 1 for the rest.
"""


def printable(text: object) -> str:
    r"""The text on one line: characters that break or reorder it, or are not seen, are escaped."""
    text = str(text)
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def plainly(fault: str) -> str:
    """A message of Pydantic in standard words, such as `must be greater than 0`."""
    return fault.removeprefix("Value error, ").partition(", unable to parse")[0].replace("Input should be", "must be")


def reason(error: BaseException) -> str:
    """The first line of the exception's text, or its type if it has none."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def summary(error: BaseException) -> str:
    """The exception's type and the first line of its text."""
    name, first = type(error).__name__, reason(error)
    return name if first == name else f"{name}: {first}"


class GraderError(Exception):
    """Something of ours failed; the message is one line with subject, value and remedy."""


class UserError(GraderError):
    """Asked for what cannot be done: a missing file, an unknown problem, an unusable database."""


class ProblemError(UserError):
    """A problem file lacks something, or raises when it is imported."""


class ReferenceOutOfMemory(ProblemError):
    """Memory ran out while the reference ran: the device is too small, or others hold too much of it."""


class ReferenceLost(ProblemError):
    """The process that runs the reference died or gave no answer: the problem's fault, or the host's."""


class ReferenceRefused(ProblemError):
    """The reference raised for the values that it was given, or returned what cannot be compared."""


class ReferenceKilled(GraderError):
    """Something outside ended the process that runs the reference. Says nothing about the problem."""


class StoreError(UserError):
    """The database cannot be opened, read or written: it is locked, read-only, not SQLite or too new."""


class StoreBusy(StoreError):
    """Another process has kept the database locked for as long as one waits."""


class ClaimLost(GraderError):
    """Another run took over what this one was grading, and has ended it; as a rule, its verdict is stored."""


class DeviceError(GraderError):
    """A device does not do what the grader needs of it, or a tensor cannot be shared with a worker."""


class NotGraded(GraderError):
    """Ended before its verdict, such as at a limit of time for one grading."""


class Cancelled(NotGraded):
    """Ended because nobody wants its verdict any more. Says nothing about the submission."""


class SandboxError(GraderError):
    """A sandbox could not be started, followed or ended. Says nothing about the submission."""


class SandboxUnavailable(SandboxError):
    """The sandbox asked for does not work on this machine; the message names what is missing."""
