"""A GPU's clocks during each round, and the rounds that they spoil. There is nothing to read on a CPU.

NVML is read between the calls of a round, while the device is warm: the lowest clocks and every throttle reason.
"""

from __future__ import annotations

from typing import Any

from grader.grading.messages import diagnose
from grader.machine.backends import backend
from grader.verdict.models import Device, Diagnosis
from grader.verdict.stages import ClockReading

REASONS = (
    "gpu_idle",
    "applications_clocks_setting",
    "sw_power_cap",
    "hw_slowdown",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
    "display_clock_setting",
)
"""Names of the bits of NVML's nvmlClocksEventReason* (before driver 535 nvmlClocksThrottleReason*), lowest first."""
SPOILING = {"hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"}
"""Faults of cooling and power supply, which come and go. sw_power_cap is not one: under load it is a large GPU's normal
state, and both sides run under it."""
MOST_DROPPED = 10
"""Rounds dropped at most. A device that never recovers is timed as it is, and the verdict says so. A choice."""


class DeviceClocks:
    """NVML's view of one device. Its methods do not raise; the first failure ends the readings."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    @staticmethod
    def of(device: Device) -> DeviceClocks | None:
        """The clocks of torch's first GPU; None on the CPU and if NVML does not answer."""
        handle = backend(device).nvml_device()
        if handle is None:
            return None
        import pynvml

        return DeviceClocks(pynvml, handle)

    def read(self) -> tuple[int, int, int] | None:
        """(SM clock in MHz, memory clock in MHz, bits of REASONS); None if the driver fails."""
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
    """Readings over all rounds of one timing, and which rounds count."""

    def __init__(self, clocks: DeviceClocks | None) -> None:
        self._clocks = clocks
        self._seen: list[tuple[int, int, int]] = []
        self._rounds = 0
        self._slowed = 0
        self.readings: list[ClockReading] = []
        self.dropped = 0

    def look(self) -> None:
        """Read the clocks, between two calls of a round."""
        seen = self._clocks.read() if self._clocks is not None else None
        if seen is None:
            self._clocks = None
        else:
            self._seen.append(seen)

    def counts(self) -> bool:
        """End a round; returns whether its samples count."""
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
        """A warning if rounds count in which the device was slowed."""
        kept = self._slowed - self.dropped
        if not kept:
            return ()
        reasons = sorted({reason for reading in self.readings for reason in reading.throttle_reasons} & SPOILING)
        return (
            diagnose(
                "device_slowed",
                "the device slowed its clocks",
                where=", ".join(reasons),
                amount=f"in {self._slowed} of {self._rounds} rounds, of which {kept} count",
                remedy="look after its cooling and power supply, and grade again",
                severity="warning",
            ),
        )


def names_of(bits: int) -> tuple[str, ...]:
    """NVML's names of the reasons that are set; `unknown_<bit>` for reasons of later drivers."""
    set_bits = [index for index in range(bits.bit_length()) if bits >> index & 1]
    return tuple(REASONS[index] if index < len(REASONS) else f"unknown_{1 << index:#x}" for index in set_bits)
