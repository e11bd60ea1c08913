"""What a CUDA toolkit may lack, out of the packages that PyTorch's own wheel brings.

A toolkit need not be whole: containers carry the compiler and the runtime alone, and PyPI's has no link names. But
<ATen/cuda/CUDAContext.h>, which nearly every kernel includes for its stream, wants the headers of cuSPARSE, cuBLAS and
cuSOLVER. Here both are searched last, so that a toolkit's own come first.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch


def complete_toolkit() -> None:
    """Let compilers and linkers that this process starts find them."""
    if "CUDA_HOME" not in os.environ:
        return
    folders = list(_packages())
    _search_too("CPLUS_INCLUDE_PATH", [folder / "include" for folder in folders])
    links = Path(tempfile.gettempdir()) / "cuda-links"
    links.mkdir(exist_ok=True)
    for library in (library for folder in folders for library in sorted((folder / "lib").glob("lib*.so.*"))):
        link = links / f"{library.name.partition('.so.')[0]}.so"
        if not link.is_symlink():
            link.symlink_to(library)
    _search_too("LIBRARY_PATH", [links])


def _packages() -> Iterator[Path]:
    """NVIDIA's, beside torch, of the CUDA version that it is built with."""
    ours = f"cu{(torch.version.cuda or '').partition('.')[0]}"
    for folder in sorted((Path(torch.__file__).parents[1] / "nvidia").glob("*/")):
        if folder.name == ours or not re.fullmatch(r"cu\d+", folder.name):
            yield folder


def _search_too(variable: str, folders: list[Path]) -> None:
    there = [str(folder) for folder in folders if folder.is_dir()]
    os.environ[variable] = os.pathsep.join([*filter(None, [os.environ.get(variable)]), *there])
