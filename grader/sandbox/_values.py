"""The values of the sandbox's interface: limits in, exits, output and layers out."""

import sys
from dataclasses import dataclass
from pathlib import Path

PYTHON = str(Path(sys.executable).parent.resolve() / Path(sys.executable).name)
"""The interpreter, under its full path: of ../bin/python, the folder before the dots is not there inside. A link of its
own is kept, since an environment is found by it."""


@dataclass(frozen=True)
class Limits:
    """The limits of one sandbox. Every field is enforced, or `Sandbox.layers` lacks its layer."""

    wall_seconds: float
    """Time from the start of the command until all its processes are killed."""

    memory_bytes: int
    """Memory of all processes together, /tmp and /dev/shm included. Without a cgroup, data of each process."""

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

    def rlimits(self, *, memory: bool, processes: bool) -> dict[str, int]:
        """Return the limits of a single process by their names in Python's `resource`.

        `memory` replaces a missing cgroup. It sets RLIMIT_DATA, since RLIMIT_AS would refuse CUDA its reserved address
        ranges. `processes` limits all processes of one uid in one user namespace: never set it for a shared uid.
        """
        chosen = {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": self.file_bytes}
        if memory:
            chosen["RLIMIT_DATA"] = self.memory_bytes
        if processes:
            chosen["RLIMIT_NPROC"] = self.process_count
        return chosen


@dataclass(frozen=True)
class Exit:
    """The end of a sandboxed command. Exactly one of `returncode` and `signal` is set."""

    returncode: int | None
    """Exit status, 0 to 255."""

    signal: int | None
    """The signal that ended it. An exit with status 128 + n cannot be distinguished from signal n."""

    timed_out: bool
    """The wall limit ended it."""

    out_of_memory: bool
    """The kernel killed at least one of its processes at the memory limit; known only with a cgroup."""

    host_out_of_memory: bool
    """The kernel killed at least one of its processes although the limit was not reached; known only with a cgroup."""

    wall_seconds: float
    """Time from the release of the command until its end was noticed."""

    def __post_init__(self) -> None:
        if (self.returncode is None) == (self.signal is None):
            raise ValueError(f"an exit has a returncode or a signal: {self.returncode=}, {self.signal=}")


@dataclass(frozen=True)
class Output:
    """The output of a sandbox, stdout and stderr in the order of arrival."""

    text: str
    """Head and tail, with a line between them that says how much is left out; invalid UTF-8 is replaced."""

    total_bytes: int
    """All that was printed, kept or not."""


@dataclass(frozen=True)
class Layer:
    """One layer of protection, as a trial run found it."""

    name: str
    """As in `Sandbox.layers`."""

    active: bool
    """The layer works in a running sandbox."""

    detail: str
    """The observation; for an inactive layer also the reason and a remedy."""
