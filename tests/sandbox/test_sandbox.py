"""What the conformance cases do not cover: sizes and times, the choice of a sandbox, builds with torch."""

import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from grader.errors import SandboxUnavailable
from grader.sandbox import Exit, Limits, Sandbox, choose, probe
from tests.sandbox.conformance import LIMITS, python

BUILD_LIMITS = Limits(
    wall_seconds=300,
    memory_bytes=8 << 30,
    scratch_bytes=2 << 30,
    shared_memory_bytes=1 << 28,
    process_count=200,
    file_bytes=1 << 30,
    output_bytes=1 << 16,
)


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    try:
        return choose("auto")
    except SandboxUnavailable as error:
        pytest.skip(str(error))


def test_an_interpreter_that_was_started_by_a_path_with_dots(sandbox: Sandbox, tmp_path: Path) -> None:
    through = os.path.relpath(sys.executable, tmp_path)
    assert through.startswith("..")
    source = "from grader.sandbox import choose; print(choose('auto').name)"
    ran = subprocess.run([through, "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ran.stdout == f"{sandbox.name}\n", ran.stderr


def test_a_gigabyte_of_output_is_read_and_dropped(sandbox: Sandbox) -> None:
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    argv = ["head", "-c", str(1 << 30), "/dev/zero"]
    with sandbox.spawn(argv, limits=replace(LIMITS, wall_seconds=60), gpu=False) as process:
        ending = process.wait()
    assert ending is not None
    assert ending.returncode == 0
    assert process.output().total_bytes == 1 << 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 32 << 10


@pytest.mark.alone
def test_starting_is_quick(sandbox: Sandbox, record_property: Callable[[str, object], None]) -> None:
    seconds = []
    for _ in range(50):
        started = time.monotonic()
        with sandbox.spawn(["true"], limits=LIMITS, gpu=False) as process:
            seconds.append(time.monotonic() - started)
            process.wait()
    record_property("median_start_ms", round(1000 * statistics.median(seconds), 1))
    sys.stdout.write(f"median start {1000 * statistics.median(seconds):.1f} ms\n")
    assert statistics.median(seconds) < 1


def test_layers_are_those_that_the_probe_found(sandbox: Sandbox) -> None:
    active = tuple(layer.name for layer in probe() if layer.active)
    assert active == (sandbox.name, *sandbox.layers)
    assert {"pid-namespace", "network-namespace", "mount-namespace", "seccomp", "no-new-privileges"} <= set(active)
    assert {"user-id", "user-namespace"} & set(active)


def test_auto_fails_closed() -> None:
    code = """
from grader.errors import SandboxUnavailable
from grader.sandbox import choose, probe
for name in ("auto", "bubblewrap"):
    try:
        choose(name)
    except SandboxUnavailable as error:
        print(error)
print([layer.active for layer in probe()])"""
    for variables, message in (({"PATH": "/nowhere"}, "apt-get install bubblewrap"), ({"GRADER_BWRAP": "/no"}, "/no")):
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
        ended = subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment
        )
        lines = ended.stdout.splitlines()
        assert len(lines) == 3
        assert message in lines[0]
        assert lines[2] == "[False]"


def test_an_exit_is_one_thing() -> None:
    with pytest.raises(ValueError, match="returncode or a signal"):
        Exit(returncode=0, signal=9, timed_out=False, out_of_memory=False, host_out_of_memory=False, wall_seconds=1.0)


def test_the_grader_sees_how_its_command_ended(sandbox: Sandbox) -> None:
    for code, returncode, signal in (("raise SystemExit(3)", 3, None), ("import os; os.abort()", None, 6)):
        with sandbox.spawn(python(code), limits=LIMITS, gpu=False) as process:
            ending = process.wait()
        assert ending is not None
        assert (ending.returncode, ending.signal) == (returncode, signal)
        assert 0 < ending.wall_seconds < 10


def test_exit_of_the_interpreter_ends_sandboxes() -> None:
    code = f"""
import sys
from grader.sandbox import Limits, choose
process = choose("auto").spawn(["sleep", "1000"], limits={LIMITS!r}, gpu=False)
print(process.pid)"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=environment)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ended.stdout), 0)


@pytest.mark.slow
def test_torch_works_inside(sandbox: Sandbox) -> None:
    pytest.importorskip("torch")
    code = "import torch; x = torch.randn(64, 64, requires_grad=True); (x @ x).sum().backward(); print(x.grad.shape)"
    with sandbox.spawn([sys.executable, "-c", code], limits=BUILD_LIMITS, gpu=False) as process:
        process.wait()
    assert "torch.Size([64, 64])" in process.output().text


@pytest.mark.slow
def test_an_extension_builds_inside(sandbox: Sandbox) -> None:
    pytest.importorskip("torch")
    code = """
from torch.utils.cpp_extension import load_inline
source = '''
#include <Python.h>
#include <torch/version.h>

static PyObject* twice(PyObject*, PyObject* x) { return PyNumber_Add(x, x); }
static PyMethodDef methods[] = {{"twice", twice, METH_O, TORCH_VERSION}, {}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "twice", nullptr, 0, methods};
extern "C" PyObject* PyInit_twice() { return PyModule_Create(&module); }
'''
print("twice", load_inline("twice", source, no_implicit_headers=True).twice(21))"""
    with sandbox.spawn([sys.executable, "-c", code], limits=BUILD_LIMITS, gpu=False) as process:
        process.wait()
    assert "twice 42" in process.output().text


@pytest.mark.slow
@pytest.mark.nvcc
def test_nvcc_works_inside(sandbox: Sandbox) -> None:
    code = """
import subprocess
open("x.cu", "w").write("__global__ void zero(float* x) { x[threadIdx.x] = 0; } int main() { return 0; }")
subprocess.run(["nvcc", "x.cu", "-o", "x"], check=True)
subprocess.run(["./x"], check=True)
print("built")"""
    with sandbox.spawn(python(code), limits=BUILD_LIMITS, gpu=False) as process:
        process.wait()
    assert "built" in process.output().text
