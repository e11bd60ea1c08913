"""The interface of every sandbox."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from grader.errors import SandboxError
from grader.sandbox._process import SandboxedProcess
from grader.sandbox._values import Limits
from grader.sandbox._zygote import Zygote

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class Sandbox(ABC):
    """Starts untrusted commands. One object serves many of them, concurrently and from any thread."""

    name: str
    """Its name in `choose`."""

    layers: tuple[str, ...]
    """The layers that a trial run found active on this machine, for the verdict."""

    copies = False
    """`spawn_copy` works on this machine, with the same layers."""

    @abstractmethod
    def spawn(
        self,
        argv: Sequence[str],
        *,
        limits: Limits,
        gpu: bool,
        pass_fds: Sequence[int] = (),
        environment: Mapping[str, str] = NO_ENVIRONMENT,
        readonly: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> SandboxedProcess:
        """Start a command, and return when it runs. Raises SandboxError if it cannot be started.

        `pass_fds` keep their numbers. `readonly` trees appear at their own paths. `hidden` paths inside of them, which
        must exist when the sandbox starts, appear empty.
        """

    def spawn_copy(
        self,
        zygote: Zygote,
        arguments: Sequence[str | int] = (),
        *,
        limits: Limits,
        gpu: bool,
        pass_fds: Sequence[int] = (),
        readonly: Sequence[Path] = (),
        hidden: Sequence[Path] = (),
    ) -> SandboxedProcess:
        """Start a copy of the zygote, which calls its `main`; see `spawn`.

        `main` gets the descriptors, under other numbers, and the arguments. Returns when the copy is requested; a copy
        that cannot be made ends at once, and its output says why. Raises SandboxError unless `copies` is set.
        """
        raise SandboxError(f"no process can join the {self.name} sandbox")
