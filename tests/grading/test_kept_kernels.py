"""Kernels that are compiled while a submission runs: kept for gradings of the same source, and for no other."""

import resource
import tarfile

import pytest

from grader import Grader
from grader.grading.build import BuildCache
from tests import expected as cases
from tests import samples

SOURCE = '''
import ctypes, os, pathlib, subprocess, torch
from torch import nn

FILE = pathlib.Path(os.environ["TRITON_CACHE_DIR"]) / "silu.so"
CODE = """
#include <cmath>
extern "C" void silu(const float* x, const float* scale, float* y, long size, long columns) {
  for (long i = 0; i < size; ++i) { const float z = x[i] * scale[i % columns]; y[i] = z / (1 + std::exp(-z)); }
}
"""

def kernel():
    """Compiled at the first call, as Triton does, into Triton's cache."""
    if not FILE.exists():
        FILE.parent.mkdir(parents=True, exist_ok=True)
        command = ["c++", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(FILE)]
        subprocess.run(command, input=CODE.encode(), check=True)
    return ctypes.CDLL(str(FILE)).silu

class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        words = [ctypes.c_void_p(value.data_ptr()) for value in (x.contiguous(), self.scale.detach(), y)]
        kernel()(*words, ctypes.c_long(x.numel()), ctypes.c_long(x.shape[1]))
        return y
'''


@pytest.fixture(scope="module")
def builds(tmp_path_factory):
    return tmp_path_factory.mktemp("builds")


@pytest.fixture(scope="module")
def grade(builds):
    problems = [cases.CASES / "problems"]
    with Grader(device="cpu", quick=True, build_cache=builds, problems=problems) as grader:
        yield lambda source: next(grader.grade_many([("scale_silu", source)]))


def test_a_second_grading_compiles_nothing(grade):
    first, second = grade(SOURCE), grade(SOURCE)
    assert first.status == second.status == "missing_backward", first.diagnoses
    assert (first.build.kernel_files, second.build.kernel_files) == (1, 0)


def test_another_source_gets_nothing_of_it(grade):
    grade(SOURCE)
    assert grade(SOURCE + "# another\n").build.kernel_files == 1


def test_a_damaged_file_is_replaced(grade, builds):
    source, before = SOURCE + "# damaged\n", set(builds.iterdir())
    grade(source)
    (kept,) = set(builds.iterdir()) - before
    with tarfile.open(kept) as archive:
        assert archive.getnames() == ["caches/triton/silu.so"]
    kept.unlink()
    kept.write_bytes(b"\0" * 512 + b"x" * 5000)
    assert (grade(source).build.kernel_files, grade(source).build.kernel_files) == (1, 0)


def test_a_cache_that_takes_nothing_more_costs_no_verdict(tmp_path, caplog):
    """A file in its place refuses all, as a full disk does; it is found after everything was judged."""
    folder = tmp_path / "builds"
    with Grader(device="cpu", quick=True, build_cache=folder, problems=[cases.CASES / "problems"]) as grader:
        folder.rmdir()
        folder.touch()
        (verdict,) = grader.grade_many([("scale_silu", SOURCE)])
    assert verdict.status == "missing_backward"
    assert "grader_failed" not in [diagnosis.code for diagnosis in verdict.diagnoses]
    assert "cannot be kept" in caplog.text


def test_a_file_that_the_disk_has_no_room_for_leaves_nothing(tmp_path, caplog):
    cache = BuildCache(tmp_path, "toolchain")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        cache.put(samples.submission(), b"x" * 10_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    assert cache.get(samples.submission()) is None
    assert "cannot be kept" in caplog.text
