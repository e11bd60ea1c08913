"""The interface of every sandbox."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from grader.sandbox._process import SandboxedProcess
from grader.sandbox._values import Limits
from grader.sandbox._zygote import CopyOf

NO_ENVIRONMENT: Mapping[str, str] = MappingProxyType({})


class Sandbox(ABC):
    """Starts untrusted commands. One object serves many of them, concurrently and from any thread."""

    name: str
    """Its name in `choose`."""

    layers: tuple[str, ...]
    """The layers that a trial run found active on this machine, for the verdict."""

    copies = False
    """`spawn` takes a zygote's copy on this machine, with the same layers."""

    @abstractmethod
    def spawn(
        self,
        command: Sequence[str] | CopyOf,
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

        A copy gets the descriptors under other numbers, and has the zygote's environment. It is only requested: one
        that cannot be made ends at once, and its output says why.
        """
