"""What a GPU says of its clocks during a round, and which rounds that spoils. On the CPU there is nothing to read.

Read through NVML between the calls of a round, while the device is warm: the lowest clocks and every reason given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from grader.grading.outcome import diagnose
from grader.verdict.models import ClockReading, Device, Diagnosis

REASONS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clock_setting": 0x100,
}
"""NVML's nvmlClocksEventReason*, which were nvmlClocksThrottleReason* before driver 535."""
SPOILING = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
"""Faults of cooling and power supply, which come and go. sw_power_cap is none: under load it is a large GPU's normal
state, and both sides run under it."""
MOST_DROPPED = 10
"""Rounds that are dropped for their clocks; a device that never recovers is timed as it is, and the verdict says so."""


class DeviceClocks:
    """NVML's view of one device; None of it raises, and the first failure ends the readings."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @staticmethod
    def of(device: Device) -> DeviceClocks | None:
        """Of torch's first GPU; None on the CPU and where NVML does not answer."""
        if device is not Device.CUDA:
            return None
        import pynvml

        try:
            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(0).uuid}")
        except pynvml.NVMLError:
            return None
        return DeviceClocks(pynvml, handle)

    def read(self) -> tuple[int, int, int] | None:
        """(SM clock in MHz, memory clock in MHz, bits of reasons); None where the driver does not tell."""
        nvml, handle = self._nvml, self._handle
        try:
            return (
                int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                int(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
                int(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
            )
        except nvml.NVMLError:
            return None


class ClockWatch:
    """Over all rounds of one timing: readings, and which rounds do not count."""

    def __init__(self, clocks: DeviceClocks | None) -> None:
        self._clocks = clocks
        self._seen: list[tuple[int, int, int]] = []
        self._rounds = 0
        self._slowed = 0
        self.readings: list[ClockReading] = []
        self.dropped = 0

    def look(self) -> None:
        """Between two calls of a round."""
        seen = self._clocks.read() if self._clocks is not None else None
        if seen is None:
            self._clocks = None
        else:
            self._seen.append(seen)

    def counts(self) -> bool:
        """Ends a round: whether its samples are to be kept."""
        seen, self._seen = self._seen, []
        self._rounds += 1
        if not seen:
            return True
        bits = 0
        for _, _, reasons in seen:
            bits |= reasons
        reading = ClockReading(
            round=self._rounds - 1,
            sm_mhz=min(sm for sm, _, _ in seen),
            memory_mhz=min(memory for _, memory, _ in seen),
            throttle_reasons=names_of(bits),
        )
        self.readings.append(reading)
        slowed = bool(SPOILING & set(reading.throttle_reasons))
        self._slowed += slowed
        if not slowed or self.dropped == MOST_DROPPED:
            return True
        self.dropped += 1
        return False

    def diagnoses(self) -> tuple[Diagnosis, ...]:
        """That rounds count in which the device was slowed."""
        kept = self._slowed - self.dropped
        if not kept:
            return ()
        reasons = sorted({reason for reading in self.readings for reason in reading.throttle_reasons} & SPOILING)
        message = (
            f"the device slowed its clocks ({', '.join(reasons)}) in {self._slowed} of {self._rounds} rounds, of which "
            f"{kept} count; look after its cooling and power supply, and grade again"
        )
        return (diagnose("device_slowed", message, severity="warning"),)


def names_of(bits: int) -> tuple[str, ...]:
    """NVML's names of the reasons that are set, `unknown_<bit>` for those that came later."""
    known: Sequence[str] = [name for name, bit in REASONS.items() if bits & bit]
    rest = bits & ~sum(REASONS.values())
    return (*known, *(f"unknown_{1 << index:#x}" for index in range(rest.bit_length()) if rest >> index & 1))
