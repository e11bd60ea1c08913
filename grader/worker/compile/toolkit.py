"""Completes a partial CUDA toolkit with files of the packages that PyTorch's wheel depends on.

Some containers carry the compiler and the runtime only, and the toolkit on PyPI has no link names. But
<ATen/cuda/CUDAContext.h>, which nearly every kernel includes for its stream, needs the headers of cuSPARSE, cuBLAS and
cuSOLVER. The packages are searched last, so that the toolkit's own files come first.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch


def complete_toolkit() -> None:
    """Add CUTLASS and the packages to the search paths of compilers and linkers that this process starts."""
    if cutlass := os.environ.get("CUTLASS_PATH"):
        _search_last("CPLUS_INCLUDE_PATH", [Path(cutlass) / "include"])
    if "CUDA_HOME" not in os.environ:
        return
    folders = list(_packages())
    _search_last("CPLUS_INCLUDE_PATH", [folder / "include" for folder in folders])
    links = Path(tempfile.gettempdir()) / "cuda-links"
    links.mkdir(exist_ok=True)
    for library in (library for folder in folders for library in sorted((folder / "lib").glob("lib*.so.*"))):
        link = links / f"{library.name.partition('.so.')[0]}.so"
        if not link.is_symlink():
            link.symlink_to(library)
    _search_last("LIBRARY_PATH", [links])


def _packages() -> Iterator[Path]:
    """Yield NVIDIA's packages beside torch, for the CUDA version that torch is built with."""
    version = f"cu{(torch.version.cuda or '').partition('.')[0]}"
    for folder in sorted((Path(torch.__file__).parents[1] / "nvidia").glob("*/")):
        if folder.name == version or not re.fullmatch(r"cu\d+", folder.name):
            yield folder


def _search_last(variable: str, folders: list[Path]) -> None:
    present = [str(folder) for folder in folders if folder.is_dir()]
    os.environ[variable] = os.pathsep.join([*filter(None, [os.environ.get(variable)]), *present])
