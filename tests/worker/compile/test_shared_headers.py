"""Every submission can include the device code in grader/device_code, and a change of it rebuilds extensions."""

import dataclasses
import inspect

import pytest
from torch.utils import cpp_extension

from grader.machine.toolchain import Toolchain
from grader.worker.compile import importing

SOURCE = "#include <kernels/host.cuh>\n"


def bound(tmp_path, **changes):
    source = tmp_path / "main.cpp"
    source.write_text(SOURCE)
    arguments = dict.fromkeys(inspect.signature(cpp_extension._write_ninja_file_and_build_library).parameters)
    arguments |= {"sources": [str(source)], "extra_cflags": [], "extra_cuda_cflags": []} | changes
    return inspect.signature(cpp_extension._write_ninja_file_and_build_library).bind(**arguments)


def include_paths(tmp_path, failing, **changes):
    """Of each compilation, the first of which fails `failing` times."""
    seen = []

    def compile_it(*args, **kwargs):
        call = inspect.signature(cpp_extension._write_ninja_file_and_build_library).bind(*args, **kwargs)
        seen.append(call.arguments["extra_include_paths"])
        if len(seen) <= failing:
            raise RuntimeError("error: as if a header were missing")

    importing.compile_extension(compile_it, bound(tmp_path, **changes), tmp_path / "lean")
    return seen


@pytest.mark.parametrize(("failing", "builds"), [(0, 1), (1, 2)], ids=["lean", "stock"])
def test_shared_headers_are_searched_last(tmp_path, failing, builds):
    seen = include_paths(tmp_path, failing)
    assert [paths[-1] for paths in seen] == [str(importing.SHARED_HEADERS)] * builds
    assert (importing.SHARED_HEADERS / "kernels" / "host.cuh").is_file()


def test_own_include_paths_come_first(tmp_path):
    assert include_paths(tmp_path, 0, extra_include_paths=["mine"]) == [["mine", str(importing.SHARED_HEADERS)]]


def test_changed_header_changes_the_fingerprint(tmp_path, monkeypatch):
    header = tmp_path / "device_code" / "kernels" / "host.cuh"
    header.parent.mkdir(parents=True)
    header.write_text("// one")
    monkeypatch.setattr(importing, "SHARED_HEADERS", tmp_path / "device_code")
    first = importing._fingerprint(bound(tmp_path))
    assert importing._fingerprint(bound(tmp_path)) == first
    header.write_text("// two")
    assert importing._fingerprint(bound(tmp_path)) != first


def test_changed_header_changes_the_toolchain():
    one = Toolchain(cxx_version=None, cuda_home=None, nvcc_version=None, torch_version="2", shared_headers="1")
    assert dataclasses.replace(one, shared_headers="2").hash != one.hash
