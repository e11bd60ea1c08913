"""The interface of a device and the registry of devices, one module each.

To add a device: a module here that has a `BACKEND`; its name becomes a member of `grader.verdict.models.Device`. A
backend outside this package is registered by `register`. What the device's workers do differently lies in
`grader.worker`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from grader.errors import UserError
from grader.options import AUTO
from grader.verdict.models import Device


@dataclass(frozen=True)
class Resolution:
    """The differences that a device resolves: two processes of one program differ a little, steadily."""

    margin: float
    """Relative difference that is called none."""
    half_width: float
    """Half width of the interval, relative to the speedup, at which rounds end."""
    least_ms: float = 0.0
    """A difference below this many milliseconds is called none either, unless it is more than `most`."""
    most: float = 1.0
    """Relative."""
    process_spread: float = 0.0
    """Relative: by this much more than the margin must two sides differ after a few rounds of one pair of processes."""
    launch_spread: float = 0.0
    """The same where launches are timed, which depend on the host."""
    placement_spread: float = 0.0
    """The same after rounds so few that each side may have had pages of one kind."""

    def margin_at(self, ms: float) -> float:
        """Relative margin for a call of so many milliseconds."""
        return max(self.margin, min(self.most, self.least_ms / max(ms, 1e-9)))


@dataclass(frozen=True)
class TimingTraits:
    """Settings for timing calls on a device."""

    resolution: Resolution
    sample_ms: float
    """A sample repeats a call until it takes so many milliseconds,"""
    sample_calls: int
    """but at most so often."""
    middle: Callable[[Sequence[float]], float]
    """Reduces a sample's calls to one time."""
    most_rounds: int
    """Rounds of a thorough grading."""
    spacers: int
    """Tensors that are allocated before a sample's, so that its place in memory is drawn."""
    spacer_bytes: int
    """Their largest size."""
    spacer_step: int
    """Bytes between their sizes."""
    least_share: float
    """Share of the overhead. The referee's clock does not resolve a shorter time, however steady a few samples look."""
    steady_ms: float
    """Milliseconds by which the overheads of two processes may differ in one interval, steadily."""


class DeviceBackend:
    """One kind of device. Methods import torch only when needed, and only `select` raises GraderError.

    Those that a device need not define are answered as for the host: it has no driver, and no memory of its own.
    """

    device: Device
    torch_device: str
    """Its name in PyTorch."""
    on_host: bool
    """Calls run on the host's own cores, beside the referee, and are timed by the host's clock."""
    timeline: bool
    """Calls are timed on the referee's own timeline on the device (`executor/gpu_timeline.py`)."""
    gpu: bool
    """Its workers see the machine's GPU devices."""
    streams: bool
    """Work is queued on streams, and a kernel's launch returns before the kernel runs."""
    tf32: bool
    """Convolutions may run in TensorFloat-32 by default."""
    timing: TimingTraits
    region_kind: Literal["host", "cuda"]
    """Where tensors lie that are shared with a worker."""
    own_memory: bool
    """Its memory is not the host's: peaks are recorded, and references give it back while others need it."""
    builds_apart: bool
    """Extensions are compiled ahead, in workers that do not see the device."""
    warm_references: int
    """References that stay warm between submissions; each holds a process, and its cases hold memory."""
    full_size_variant: str
    """The variant that is timed, where the problem has it; else `full`."""
    ends_in_background: bool
    """A worker that ends does not disturb the next one, and takes long enough not to be waited for."""
    profiles_quickly: bool
    """A profiler starts at once and leaves the process as it was, so that `quick` gradings and references have one."""
    pauses_spares: bool
    """Spare workers would disturb what is timed even when they idle, and are paused meanwhile."""

    def available(self) -> bool:
        """Whether submissions can run on it here."""
        raise NotImplementedError

    def select(self, index: int) -> None:
        """Use the device of this index, before anything touches a device. Raises UserError if it is missing."""
        raise NotImplementedError

    def worker_environment(self) -> Mapping[str, str]:
        """Environment variables that every worker needs for this device."""
        return {}

    def device_name(self) -> str:
        """The model, as a verdict's environment records it; `none` where it is not available."""
        raise NotImplementedError

    def device_id(self) -> str | None:
        """An identity among devices of its model, such as a GPU's UUID; None for the host."""
        return None

    def names(self) -> tuple[str, ...]:
        """Its devices that this process may use, by the names that `visibility` takes; empty for the host.

        Does not import torch.
        """
        return ()

    def visibility(self, name: str | None) -> Mapping[str, str]:
        """Environment variables of a process that sees the device of this name alone; None hides all."""
        return {}

    def driver_version(self) -> str | None:
        """The driver's version, where the device has one."""
        return None

    def architecture(self) -> str | None:
        """The architecture that extensions are compiled for, such as `9.0`; None if compilers need none."""
        return None

    def start_driver(self) -> None:
        """Start the device's driver for this process in the background, while it imports torch."""

    def prepare(self) -> None:
        """Make this process's own context, while workers make theirs."""

    def synchronize(self) -> None:
        """Wait until the device has done what this process gave it."""

    def empty_cache(self) -> None:
        """Give memory that this process's allocator holds back to the device."""

    def random_devices(self) -> list[int]:
        """Indices of devices with random generators of their own, for torch.random.fork_rng."""
        return []

    def used_bytes(self) -> int | None:
        """The device's own memory in use by all processes; None if it has none."""
        return None

    def unused_bytes(self) -> int:
        """Bytes of the device's own memory that no process uses; 0 if it has none."""
        return 0

    def allocatable_bytes(self) -> int:
        """Bytes that are left of the limit, and free; 0 if it has no memory of its own."""
        return 0

    def ample_memory(self) -> bool:
        """Whether most of the device's own memory is free, so that cached tensors may stay there."""
        return False

    def cache_bytes(self) -> int | None:
        """Size of the last-level cache, where the driver or the kernel says it."""
        return None

    def flush_bytes(self) -> int:
        """Bytes to write so that the caches are cold."""
        raise NotImplementedError

    def nvml_device(self) -> Any | None:
        """NVML's handle of the device; None without one."""
        return None


_REGISTERED: dict[Device, DeviceBackend] = {}


def backend(device: Device) -> DeviceBackend:
    """The backend of a device, imported when it is first used."""
    own: DeviceBackend = _REGISTERED.get(device) or importlib.import_module(f"{__name__}.{device.value}").BACKEND
    return own


def register(own: DeviceBackend) -> None:
    """Make a backend outside this package known; its device comes from `Device.add`."""
    _REGISTERED[own.device] = own


def accelerators() -> list[Device]:
    """Every device that is not the host itself."""
    return [device for device in Device if not backend(device).on_host]


def default_device() -> Device:
    """The device for submissions that run on any: the first accelerator that is available, else the CPU."""
    return next((device for device in accelerators() if backend(device).available()), Device.CPU)


def select_index(device: str, index: int) -> None:
    """Use the `index`-th device of a kind, or of every accelerator for `auto`.

    Must be called before anything touches a device. Raises UserError if there are fewer devices, and if this process
    uses another one.
    """
    if device != AUTO:
        backend(Device(device)).select(index)
    else:
        for accelerator in accelerators():
            backend(accelerator).select(index)


def require(device: str) -> None:
    """Raises UserError for a device that is not available; `auto` always is."""
    if device != AUTO and not backend(Device(device)).available():
        raise UserError(f"--device {device}: no {device.upper()} device is here; leave it out, or use --device cpu")


def worker_environment() -> dict[str, str]:
    """Environment variables for workers, whichever device they use."""
    return {name: value for device in Device for name, value in backend(device).worker_environment().items()}
