"""The state that a worker keeps between jobs: shared regions, models, inputs, tapes and gradients."""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

from grader import protocol as p
from grader.worker.autograd.sources import Sources
from grader.worker.autograd.tensors import as_dense, as_tensor, state_of
from grader.worker.compile.importing import Builder
from grader.worker.memory import Region
from grader.worker.timing.host import HostMemory
from grader.worker.timing.spacing import Spacers


@dataclass
class Inputs:
    """Private copies of one set of arguments."""

    arguments: list[object]
    leaves: dict[str, torch.Tensor]
    """The tensors among the arguments, as `input[i]`."""


@dataclass
class Tape:
    """The outputs of one forward, and the leaves that it can be differentiated with respect to."""

    outputs: dict[str, object]
    leaves: dict[str, torch.Tensor]
    changed: str = ""
    """What a `Change` changed in the forward."""
    numbers: int = 0
    """Different numbers in the results that it rounded, as far as a sample shows."""
    slips: tuple[p.PossibleSlip, ...] = ()
    """What could go wrong in it."""
    sources: Sources = field(default_factory=Sources)
    """What operators of the forward took, where a slip asks for that."""


@dataclass
class Session:
    """The state that step handlers share."""

    builder: Builder
    descriptors: list[int] = field(default_factory=list)
    """File descriptors that came with the present job, for `take_descriptor`."""
    regions: dict[str, Region] = field(default_factory=dict)
    submitted: type | None = None
    """The class that was imported last."""
    dtype: torch.dtype | None = None
    """The dtype that its models are converted to."""
    tf32: bool = False
    """Every call may use TensorFloat-32."""
    detaches_kept: bool = False
    """What an earlier forward left in attributes is detached before each forward."""
    models: dict[str, nn.Module] = field(default_factory=dict)
    parameters: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """Each model's as it was made or loaded. An optimizer holds these, whatever a forward puts in their places."""
    inputs: dict[str, Inputs] = field(default_factory=dict)
    tapes: dict[str, Tape] = field(default_factory=dict)
    grads: dict[str, dict[str, torch.Tensor | None]] = field(default_factory=dict)
    accumulated: bool = False
    """A backward has added to the parameters' `.grad`."""
    grad_outputs: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """The grad_outputs behind `grads`, by the same keys."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    spacers: Spacers = field(default_factory=Spacers)
    host_memory: HostMemory = field(default_factory=HostMemory)
    """Used on the CPU only."""
    frozen: list[torch.Tensor] = field(default_factory=list)
    """Leaves that do not require a gradient until the next forward."""
    timed: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
    """Events before and after the part that was queued last."""

    def add_model(self, key: str, model: nn.Module) -> None:
        """Keep a model, with the parameters that it has now."""
        self.models[key] = model
        self.parameters[key] = dict(model.named_parameters())

    def take_descriptor(self) -> int:
        """Return the next file descriptor of the job.

        Raises OSError if it did not arrive: the kernel drops what a process with too many open files is sent.
        """
        if not self.descriptors:
            raise OSError(errno.EMFILE, "the process has as many files open as it may, and can receive no other")
        return self.descriptors.pop(0)

    def found(self, sources: Iterable[str]) -> Iterator[tuple[str, object]]:
        """Yield `Export` sources with their values; None if a name is unknown.

        Raises KeyError for an unknown key.
        """
        states: dict[str, dict[str, torch.Tensor]] = {}  # a walk over all modules each
        for source in sources:
            kind, key, name = source.split(":", 2)
            if kind == "state" and key not in states:
                states[key] = state_of(self.models[key])
            yield source, states[key].get(name) if kind == "state" else self._find(kind, key, name)

    def _find(self, kind: str, key: str, name: str) -> object:
        if kind == "output":
            return as_tensor(self.tapes[key].outputs.get(name), self.device)
        if kind == "grad":
            return as_dense(self.grads[key].get(name))
        if kind == "cotangent":
            return self.grad_outputs[key].get(name)
        return self.inputs[key].arguments[int(name)]

    def clear_grads(self) -> None:
        """Clear what an accumulating backward left in the parameters' `.grad`, as it is before the first one."""
        if self.accumulated:
            for parameters in self.parameters.values():
                for parameter in parameters.values():
                    parameter.grad = None
        self.accumulated = False

    def thaw(self) -> None:
        """Let frozen leaves require gradients again.

        A leaf stays frozen after its forward, because the backward may recompute parts of that forward.
        """
        for leaf in self.frozen:
            leaf.requires_grad_(True)
        self.frozen.clear()

    def synchronize(self) -> None:
        """Wait for the GPU, if the models are on one."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
