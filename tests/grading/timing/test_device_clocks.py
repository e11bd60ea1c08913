"""NVML's readings beside the rounds, from a made-up driver, so that no GPU is needed."""

import pytest

from grader.grading.pipeline import Pipeline
from grader.grading.timing import device_clocks
from grader.grading.timing.clocks import timing_of
from grader.grading.timing.device_clocks import MOST_DROPPED, REASONS, ClockWatch, DeviceClocks, names_of
from grader.options import GraderOptions
from grader.verdict.models import Device, Problem, Submission


class Nvml:
    """Answers with each (SM clock, memory clock, reasons) in turn, then the last one for ever; None fails."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    class NVMLError(Exception):
        pass

    def __init__(self, *answers):
        self._answers = list(answers)

    def nvmlDeviceGetClockInfo(self, handle, kind):  # noqa: N802
        answer = self._answers[0]
        if answer is None:
            raise self.NVMLError
        return answer[kind - 1]

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle):  # noqa: N802
        return (self._answers.pop(0) if len(self._answers) > 1 else self._answers[0])[2]


def bit(reason):
    return 1 << REASONS.index(reason)


def watch(*answers):
    return ClockWatch(DeviceClocks(Nvml(*answers), None))


def one_round(clock_watch):
    clock_watch.look()
    clock_watch.look()
    return clock_watch.counts()


def test_the_lowest_clocks_and_all_reasons_of_a_round():
    seen = watch((1980, 2619, bit("sw_power_cap")), (1755, 2600, bit("gpu_idle")))
    assert one_round(seen)
    (reading,) = seen.readings
    assert (reading.round, reading.sm_mhz, reading.memory_mhz) == (0, 1755, 2600)
    assert reading.throttle_reasons == ("gpu_idle", "sw_power_cap")


@pytest.mark.parametrize("reason", sorted(device_clocks.SPOILING))
def test_a_spoiled_round_is_dropped_and_stays_on_record(reason):
    calm, hot = (1980, 2619, 0), (1200, 2619, bit(reason))
    seen = watch(calm, hot, calm)
    assert not one_round(seen)
    assert one_round(seen)
    assert [reading.throttle_reasons for reading in seen.readings] == [(reason,), ()]
    assert (seen.dropped, seen.diagnoses()) == (1, ())


@pytest.mark.parametrize("reason", sorted(set(REASONS) - device_clocks.SPOILING))
def test_other_reasons_are_kept(reason):
    assert one_round(watch((1980, 2619, bit(reason))))


def test_a_device_that_never_recovers_is_timed_as_it_is_and_the_verdict_says_so():
    seen = watch((1200, 2619, bit("hw_thermal_slowdown")))
    assert [one_round(seen) for _ in range(MOST_DROPPED + 2)] == [False] * MOST_DROPPED + [True] * 2
    (diagnosis,) = seen.diagnoses()
    assert (diagnosis.code, diagnosis.severity) == ("device_slowed", "warning")
    assert f"{MOST_DROPPED + 2} of {MOST_DROPPED + 2} rounds, of which 2 count" in diagnosis.message


def test_a_driver_that_fails_spoils_nothing():
    seen = watch((1980, 2619, 0), None)
    assert one_round(seen)
    assert one_round(seen)
    assert [reading.round for reading in seen.readings] == [0]


def test_there_are_no_clocks_on_the_cpu():
    assert DeviceClocks.of(Device.CPU) is None
    unwatched = ClockWatch(None)
    assert one_round(unwatched)
    assert (unwatched.readings, unwatched.diagnoses()) == ([], ())


def test_the_names_are_nvmls():
    pynvml = pytest.importorskip("pynvml")
    for name in REASONS:
        assert getattr(pynvml, "nvmlClocksEventReason" + name.title().replace("_", "")) == bit(name)
    assert names_of(0x8 | 0x400) == ("hw_slowdown", "unknown_0x400")


MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def get_inputs():
    return [torch.randn(64, 64)]
"""


@pytest.mark.slow
def test_dropped_rounds_are_replaced(monkeypatch, tmp_path):
    calm, hot = (1980, 2619, 0), (1200, 2619, bit("hw_slowdown"))
    # Two pairs are two looks a round: the second round is hot.
    clocks = DeviceClocks(Nvml(*[calm] * 2, *[hot] * 2, calm), None)
    monkeypatch.setattr(DeviceClocks, "of", staticmethod(lambda _: clocks))
    monkeypatch.setattr("grader.grading.plan.QUICK", device_clocks_plan())
    # A busy machine may make the referee doubt microseconds, and have all rounds again.
    monkeypatch.setattr("grader.grading.timing.judge.timing_of", lambda samples: (timing_of(samples)[0], False))
    problem = Problem(id="double", path=tmp_path / "double.py", source=MODEL)
    problem.path.write_text(MODEL)
    itself = Submission(author="aa", problem_id="double", path="x", source=MODEL.replace("Model(", "ModelNew("))
    with Pipeline(GraderOptions(device="cpu", quick=True, seconds=600.0)) as grader:
        timing = grader.grade(grader.request(problem, itself)).timing
    assert timing.total.rounds == 3
    assert [bool(reading.throttle_reasons) for reading in timing.clocks] == [False, True, False, False]


def device_clocks_plan():
    from grader.grading.timing.stopping import RoundLimits

    return RoundLimits(min_rounds=3, max_rounds=3, seconds=60.0)
