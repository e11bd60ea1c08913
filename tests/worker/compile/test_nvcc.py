"""nvcc with its two halves in parallel produces what nvcc produces."""

import os
import re
import subprocess
import sys

import pytest

from grader.machine.toolchain import find_cuda_home
from grader.worker.compile import nvcc

pytestmark = pytest.mark.nvcc

KERNELS = """
template <int STEP>
__global__ void scale(float* x, float by, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += STEP * blockDim.x * gridDim.x) x[i] *= by;
}
namespace HIDDEN {
__global__ void add(float* x, float by) { x[threadIdx.x] += by; }
}
void run(float* x, int n) {
  scale<1><<<32, 256>>>(x, 2.0f, n);
  HIDDEN::add<<<1, 32>>>(x, 1.0f);
}
"""
NAMED = KERNELS.replace("HIDDEN", "inner")
ANONYMOUS = KERNELS.replace("HIDDEN::", "").replace("namespace HIDDEN", "namespace")
ONE_ARCHITECTURE = ["-gencode=arch=compute_90,code=sm_90"]
TORCH_FLAGS = ["-MD", "-MF", "out.d", "--expt-relaxed-constexpr", "--compiler-options", "-fPIC", "-O3", "-std=c++20"]


def compiled(folder, text, way, flags=ONE_ARCHITECTURE):
    """Return the finished process and the object file; temporary files go to `folder/tmp`."""
    (folder / "tmp").mkdir(exist_ok=True)
    (folder / "kernels.cu").write_text(text)
    real = f"{find_cuda_home()}/bin/nvcc"
    command = [real] if way == "stock" else [sys.executable, "-I", nvcc.__file__, real]
    done = subprocess.run(
        [*command, *TORCH_FLAGS, *flags, "-c", "kernels.cu", "-o", f"{way}.o"],
        cwd=folder,
        env=os.environ | {"TMPDIR": str(folder / "tmp")},
        capture_output=True,
        text=True,
        check=False,
    )
    return done, folder / f"{way}.o"


def section(path, name):
    target = path.with_suffix(".section")
    subprocess.run(["objcopy", "-O", "binary", f"--only-section={name}", path, target], check=True)
    return target.read_bytes()


def symbols(path):
    listed = subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout
    without_ids = re.sub(r"[0-9a-f]{8}_(\d+_kernels_cu)_[0-9a-f]{8}", r"\1", listed)
    return sorted(line.split()[-2:] for line in without_ids.splitlines() if "cudafe1" not in line)


def test_device_code_is_identical(tmp_path):
    (_, stock), (done, ours) = (compiled(tmp_path, NAMED, way) for way in ("stock", "ours"))
    assert done.returncode == 0, done.stderr
    assert len(section(ours, ".nv_fatbin")) > 1000
    assert section(ours, ".nv_fatbin") == section(stock, ".nv_fatbin")
    assert symbols(ours) == symbols(stock)


def test_host_and_device_agree_on_internal_names(tmp_path):
    (_, stock), (done, ours) = (compiled(tmp_path, ANONYMOUS, way) for way in ("stock", "ours"))
    assert done.returncode == 0, done.stderr
    assert symbols(ours) == symbols(stock)
    internal = set(re.findall(rb"_GLOBAL__N__\w{8}_10_kernels_cu_\w{8}", ours.read_bytes()))
    assert len(internal) == 1


def test_nothing_is_left_behind(tmp_path):
    assert compiled(tmp_path, NAMED, "ours")[0].returncode == 0
    assert list((tmp_path / "tmp").iterdir()) == []


def test_the_commands_are_those_of_the_dry_run(tmp_path, monkeypatch):
    (tmp_path / "kernels.cu").write_text(NAMED)
    monkeypatch.chdir(tmp_path)
    arguments = [*TORCH_FLAGS, *ONE_ARCHITECTURE, "-c", "kernels.cu", "-o", "ours.o"]
    plan = nvcc.plan_of(f"{find_cuda_home()}/bin/nvcc", arguments)
    assert [line.split(" ", 1)[0].strip('"').rpartition("/")[2] for line in plan.host] == ["gcc", "cudafe++"]
    assert [line.split(" ", 1)[0].strip('"').rpartition("/")[2] for line in plan.device] == [
        "gcc",
        "cicc",
        "ptxas",
        "fatbinary",
    ]


@pytest.mark.parametrize("broken", ["void run(", "__global__ int wrong() { return 1; }"])
def test_a_compile_error_is_the_compilers(tmp_path, broken):
    done, made = compiled(tmp_path, broken, "ours")
    assert done.returncode == 1
    assert "error" in done.stderr
    assert not made.exists()


def test_several_architectures_are_left_to_nvcc(tmp_path):
    two = [*ONE_ARCHITECTURE, "-gencode=arch=compute_80,code=sm_80"]
    (_, stock), (done, ours) = (compiled(tmp_path, NAMED, way, two) for way in ("stock", "ours"))
    assert done.returncode == 0, done.stderr
    assert section(ours, ".nv_fatbin") == section(stock, ".nv_fatbin")
