"""What the grader needs to know of a device, one module a device.

To add a device: a member of `grader.verdict.models.Device`, and a module here that is named after its value and has a
`BACKEND`. What the device's workers do differently lies in `grader.worker`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Literal, Protocol

from grader.errors import UserError
from grader.options import AUTO
from grader.verdict.models import Device


class DeviceBackend(Protocol):
    """One kind of device. Methods import torch only when needed, and only `select` raises GraderError."""

    device: Device
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

    def select(self, index: int) -> None:
        """Use the device of this index, before anything touches a device. Raises UserError if it is missing."""

    def worker_environment(self) -> Mapping[str, str]:
        """Environment variables that every worker needs for this device."""

    def device_name(self) -> str:
        """The model, as a verdict's environment records it; `none` where it is not available."""

    def driver_version(self) -> str | None:
        """The driver's version, where the device has one."""

    def architecture(self) -> str | None:
        """The architecture that extensions are compiled for, such as `9.0`; None if compilers need none."""

    def prepare(self) -> None:
        """Make this process's own context, while workers make theirs."""

    def synchronize(self) -> None:
        """Wait until the device has done what this process gave it."""

    def empty_cache(self) -> None:
        """Give memory that this process's allocator holds back to the device."""

    def random_devices(self) -> list[int]:
        """Indices of devices with random generators of their own, for torch.random.fork_rng."""

    def used_bytes(self) -> int | None:
        """The device's own memory in use by all processes; None if it has none."""

    def free_bytes(self) -> int:
        """Bytes that are left of the limit, and free; 0 if it has no memory of its own."""

    def ample_memory(self) -> bool:
        """Whether most of the device's own memory is free, so that cached tensors may stay there."""

    def cache_bytes(self) -> int | None:
        """Size of the last-level cache, where the driver or the kernel says it."""


def backend(device: Device) -> DeviceBackend:
    """The backend of a device, imported when it is first used."""
    own: DeviceBackend = importlib.import_module(f"{__name__}.{device.value}").BACKEND
    return own


def default_device() -> Device:
    """The device for submissions that run on any: the first accelerator that is available, else the CPU."""
    return next((device for device in Device if device is not Device.CPU and backend(device).available()), Device.CPU)


def select_index(device: str, index: int) -> None:
    """Use the `index`-th device of a kind, or of every accelerator for `auto`.

    Must be called before anything touches a device. Raises UserError if there are fewer devices.
    """
    if device != AUTO:
        backend(Device(device)).select(index)
    elif index:
        for accelerator in set(Device) - {Device.CPU}:
            backend(accelerator).select(index)


def require(device: str) -> None:
    """Raises UserError for a device that is not available; `auto` always is."""
    if device != AUTO and not backend(Device(device)).available():
        raise UserError(f"--device {device}: no {device.upper()} device is here; leave it out, or use --device cpu")


def worker_environment() -> dict[str, str]:
    """Environment variables for workers, whichever device they use."""
    return {name: value for device in Device for name, value in backend(device).worker_environment().items()}
