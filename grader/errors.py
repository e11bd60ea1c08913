"""Our own failures, as a tree. A submission's failure is a verdict, never an exception.

GraderError
├── UserError
│   ├── ProblemError
│   │   └── ReferenceLost
│   └── StoreError
├── DeviceError
└── SandboxError
    └── SandboxUnavailable

The command line prints the message of any of them as one line. It exits with 2 for a UserError and with 1 for the rest.
"""


class GraderError(Exception):
    """Something of ours failed; the message is one line with subject, value and remedy."""


class UserError(GraderError):
    """Asked for what cannot be done: a missing file, an unknown problem, an unusable database."""


class ProblemError(UserError):
    """A problem file lacks something, or raises when it is imported."""


class ReferenceLost(ProblemError):
    """The process that runs the reference died or gave no answer: the problem's fault, or the host's."""


class StoreError(UserError):
    """The database cannot be opened, read or written: locked, read-only, no SQLite file, from a newer grader."""


class DeviceError(GraderError):
    """A device does not do what the grader needs of it, or a tensor cannot be shared with a worker."""


class SandboxError(GraderError):
    """A sandbox could not be started, followed or ended. Says nothing about the submission."""


class SandboxUnavailable(SandboxError):
    """The sandbox asked for does not work on this machine; the message names what is missing."""
