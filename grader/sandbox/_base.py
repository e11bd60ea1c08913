"""What every sandbox offers."""

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
    """Starts untrusted commands. The same object serves many, also at the same time and from many threads."""

    name: str
    """What `choose` knows it by."""

    layers: tuple[str, ...]
    """The layers seen to be active on this machine, for the verdict."""

    copies = False
    """`spawn_copy` works here, with the same layers."""

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
        """Returns when the command runs. Raises SandboxError when it cannot be started.

        `pass_fds` keep their numbers. `readonly` trees are seen at their own paths. `hidden` paths inside them exist
        already when the sandbox starts, and are seen empty.
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
        """As `spawn`, but the command is a copy of the zygote that calls its `main`.

        That is given the descriptors, which have other numbers then, and the arguments. Returns when the copy is asked
        for; one that cannot be made ends at once, and its output says why. Only where `copies` says so.
        """
        raise SandboxError(f"no process can join the {self.name} sandbox")
