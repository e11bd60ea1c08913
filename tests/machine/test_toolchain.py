"""Compilers are found where machines keep them; a toolkit is a folder with a real nvcc and its headers."""

import dataclasses
import importlib.metadata
import importlib.util
from pathlib import Path
from types import SimpleNamespace

import pytest

from grader.errors import UserError
from grader.machine import toolchain


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """No compilers at all, and a torch built with CUDA 13.0."""
    for name in ("CUDA_HOME", "CUDA_PATH", "CXX", "CUTLASS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(toolchain, "torch_cuda_version", lambda: "13.0")
    monkeypatch.setattr(toolchain, "_SYSTEM_HOMES", (tmp_path / "usr" / "cuda",))
    site = SimpleNamespace(origin=None, submodule_search_locations=[str(tmp_path / "nvidia")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: site if name == "nvidia" else None)
    return tmp_path


def program(path, script):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def toolkit(home, version="13.0.88"):
    program(home / "bin" / "nvcc", f"echo 'Cuda compilation tools, release 13.0, V{version}'")
    (home / "include").mkdir()
    (home / "include" / "cuda_runtime.h").touch()
    return home


def test_nothing_is_found_on_an_empty_machine(machine):
    assert toolchain.find_cuda_home() is None
    assert toolchain.find_cxx() is None


def test_cuda_home_comes_first_then_the_system_then_pypi(machine, monkeypatch):
    pypi = toolkit(machine / "nvidia" / "cu13")
    assert toolchain.find_cuda_home() == pypi
    system = toolkit(machine / "usr" / "cuda")
    assert toolchain.find_cuda_home() == system
    named = toolkit(machine / "mine")
    monkeypatch.setenv("CUDA_HOME", str(named))
    assert toolchain.find_cuda_home() == named


def test_a_toolkit_of_another_major_version_is_passed_over(machine):
    toolkit(machine / "usr" / "cuda", "12.8.61")
    assert toolchain.find_cuda_home() is None
    pypi = toolkit(machine / "nvidia" / "cu13")
    assert toolchain.find_cuda_home() == pypi


def test_a_folder_without_nvcc_is_no_toolkit(machine):
    (machine / "nvidia" / "cu13" / "include").mkdir(parents=True)
    (machine / "nvidia" / "cu13" / "include" / "cuda_runtime.h").touch()
    assert toolchain.find_cuda_home() is None


@pytest.mark.parametrize(("version", "message"), [(None, "no bin/nvcc"), ("12.8.61", "CUDA 12.8.61, while torch")])
def test_a_cuda_home_that_cannot_work_is_an_error(machine, monkeypatch, version, message):
    home = machine / "mine"
    if version:
        toolkit(home, version)
    monkeypatch.setenv("CUDA_HOME", str(home))
    with pytest.raises(UserError, match=message):
        toolchain.find_cuda_home()


def test_a_link_on_the_path_leads_to_the_toolkit(machine):
    home = toolkit(machine / "opt" / "cuda-13.0")
    (machine / "bin").mkdir()
    (machine / "bin" / "nvcc").symlink_to(home / "bin" / "nvcc")
    assert toolchain.find_cuda_home() == home


def test_a_script_on_the_path_is_asked_where_its_toolkit_is(machine):
    home = toolkit(machine / "opt" / "cuda-13.0")
    program(machine / "bin" / "nvcc", f"echo '#$ _HERE_={home}/bin' >&2; echo '#$ TOP={home}/bin/..' >&2")
    assert toolchain.find_cuda_home() == home


def cutlass(folder, version="4.2"):
    (folder / "include" / "cutlass").mkdir(parents=True)
    (folder / "include" / "cutlass" / "version.h").write_text(version)
    return folder


def test_cutlass_is_the_named_one_then_pypis(machine, monkeypatch):
    assert toolchain.find_cutlass() is None
    pypi = cutlass(machine / "cutlass_library" / "source")
    site = SimpleNamespace(submodule_search_locations=[str(machine / "cutlass_library")])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: site if name == "cutlass_library" else None)
    assert toolchain.find_cutlass() == pypi
    monkeypatch.setenv("CUTLASS_PATH", str(cutlass(machine / "mine")))
    assert toolchain.find_cutlass() == machine / "mine"
    monkeypatch.setenv("CUTLASS_PATH", str(machine))
    with pytest.raises(UserError, match=r"no include/cutlass/version\.h there; correct it, or unset it"):
        toolchain.find_cutlass()


def test_another_cutlass_is_another_toolchain(tmp_path):
    one, other = cutlass(tmp_path / "one"), cutlass(tmp_path / "other", "4.3")
    made = toolchain.Toolchain(None, None, None, None, "2.11")
    hashes = {dataclasses.replace(made, cutlass=folder).hash for folder in (None, one, other)}
    assert len(hashes) == 3


def test_the_compiler_is_the_one_that_torch_takes(machine, monkeypatch):
    default = program(machine / "bin" / "c++", "echo c++ 12.2.0; echo more")
    assert toolchain.find_cxx() == default
    named = program(machine / "bin" / "clang++", "echo clang 19")
    monkeypatch.setenv("CXX", "clang++ -stdlib=libc++")
    assert toolchain.find_cxx() == named


@pytest.mark.parametrize(
    ("requires", "expected"),
    [
        (['cuda-toolkit[cublas,cudart]==13.0.3; platform_system == "Linux"'], "==13.0.3"),
        (["sympy>=1.13"], "==13.0.*"),
        (None, "==13.0.*"),
    ],
)
def test_the_requirement_is_what_torch_pins(machine, monkeypatch, requires, expected):
    monkeypatch.setattr(importlib.metadata, "requires", lambda _: requires)
    assert toolchain.pypi_requirement() == f"cuda-toolkit[nvcc,cudart,cccl,nvvm,crt]{expected}"


def test_a_torch_without_cuda_needs_no_toolkit(machine, monkeypatch):
    toolkit(machine / "usr" / "cuda")
    monkeypatch.setattr(toolchain, "torch_cuda_version", lambda: None)
    assert toolchain.find_cuda_home() is None
    assert toolchain.pypi_requirement() is None


def test_the_hash_changes_with_versions_and_headers_and_not_with_places():
    here = toolchain.Toolchain("c++ 12", Path("/usr/local/cuda"), "13.0.88", "2.13.0")
    there = toolchain.Toolchain("c++ 12", Path("/opt/cuda"), "13.0.88", "2.13.0")
    newer = toolchain.Toolchain("c++ 12", Path("/usr/local/cuda"), "13.1.0", "2.13.0")
    whole = dataclasses.replace(here, headers=("cuda_runtime.h", "cusparse.h"))
    assert here.hash == there.hash
    assert len({here.hash, newer.hash, whole.hash}) == 3


def test_this_machines_torch_tells_its_cuda_version_without_being_imported():
    import torch

    assert toolchain.torch_cuda_version() == torch.version.cuda
