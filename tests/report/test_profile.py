"""A GPU's profile as text: launches, rates, shares of the bound, and nothing that a kernel's name could do."""

from grader.report.profile import profile_in_full
from grader.verdict.models import Device
from grader.verdict.profiles import Amount, KernelLine, OperatorLine, PassLines, PeakRates, SideProfile
from tests import samples
from tests.report.test_text import HOSTILE, printed


def kernel(name, ms, **more):
    return KernelLine(
        name=name,
        calls=1,
        ms=ms,
        grid=(132, 2, 1),
        block=(256, 1, 1),
        registers=40,
        shared_bytes=16384,
        local_bytes=8,
        occupancy=0.75,
        **more,
    )


def gpu_profile(name="void fused<float>(float*)"):
    amount = Amount(bytes=2_000_000_000, operations=1_000_000_000, bound_ms=0.5)
    many = tuple(kernel(f"small{index}", 0.001) for index in range(30))
    mine = PassLines(ms=1.03, calls=31, work=amount, kernels=(kernel(name, 1.0), *many))
    copied = OperatorLine(name="copy_", calls=1, kernels=2, ms=2.0, work=amount)
    theirs = PassLines(ms=2.0, calls=2, work=amount, kernels=(kernel("copy", 2.0, work=amount, operator="copy_"),))
    theirs = theirs.model_copy(update={"operators": (copied,)})
    return samples.profile(
        device=Device.CUDA,
        device_name="NVIDIA H200",
        peaks=PeakRates(bytes=4.2e12, float32=5e13, tf32=4e14),
        candidate=SideProfile(forward=mine),
        reference=SideProfile(forward=theirs, trouble="its backward raised"),
    )


def test_both_sides_stand_beside_each_other():
    text = printed(profile_in_full(gpu_profile()))
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "peaks measured here: 4200 GB/s; TFLOP/s: 50 float32, 400 TensorFloat-32" in lines
    assert "submission 1.0300 31 1942 0.971 0.5000 49%" in lines
    assert "reference 2.0000 2 1000 0.5 0.5000 25%" in lines
    assert "fused<float>(float*) 1.0000 97.1% 1 132x2 256 40 16384 8 75%" in lines
    assert "copy 2.0000 100.0% 1 1000 0.5 0.5000 25% 132x2 256 40 16384 8 75% copy_" in lines
    assert "copy_ 2.0000 1 2 1000 0.5 0.5000 25%" in lines
    assert "15 more 0.0150 1.5% 15" in lines
    assert "reference: its backward raised" in lines


def test_a_kernels_name_steers_no_terminal():
    text = printed(profile_in_full(gpu_profile(HOSTILE)))
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
