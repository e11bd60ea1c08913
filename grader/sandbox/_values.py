"""The values that cross the sandbox's interface."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What one sandbox may use. Every field is enforced, or its absence shows in `Sandbox.layers`."""

    wall_seconds: float
    """Time from the start of the command until the whole tree is killed."""

    memory_bytes: int
    """Memory of all processes together, /tmp and /dev/shm included. Without a cgroup: the data of each process."""

    scratch_bytes: int
    """Size of the private /tmp; HOME and the caches point into it."""

    shared_memory_bytes: int
    """Size of the private /dev/shm."""

    process_count: int
    """Processes and threads that may exist at once."""

    file_bytes: int
    """Largest file that a process may write (RLIMIT_FSIZE; beyond it SIGXFSZ)."""

    output_bytes: int
    """How much of stdout and stderr together is kept, head and tail; the rest is read, counted and dropped."""


@dataclass(frozen=True)
class Exit:
    """How a sandboxed command ended. Exactly one of `returncode` and `signal` is set."""

    returncode: int | None
    """Exit status, 0 to 255."""

    signal: int | None
    """The signal that ended it. A command that exits with 128 + n by itself reads the same as signal n."""

    timed_out: bool
    """The wall limit ended it."""

    out_of_memory: bool
    """The kernel killed at least one of its processes at the memory limit; only a cgroup can tell."""

    wall_seconds: float
    """From the release of the command until its end was seen."""

    def __post_init__(self) -> None:
        if (self.returncode is None) == (self.signal is None):
            raise ValueError(f"an exit has a returncode or a signal: {self.returncode=}, {self.signal=}")


@dataclass(frozen=True)
class Output:
    """What a sandbox printed, stdout and stderr in the order of arrival."""

    text: str
    """Head and tail; invalid UTF-8 replaced, a line tells how much is left out between them."""

    total_bytes: int
    """All that was printed, kept or not."""


@dataclass(frozen=True)
class Layer:
    """One layer of protection, as it was seen to work or not."""

    name: str
    """As in `Sandbox.layers`."""

    active: bool
    """Seen to hold in a running sandbox."""

    detail: str
    """What was seen; where inactive, why and what would help."""
