"""Imports a submission; sees, and where it can skips, each extension that the submission compiles.

PyTorch's own `load_inline` and `load` stay as they are but for the one function that writes and runs a ninja file:
where the bundle has a library made from the same sources and flags, that library is put in place instead. The rest is
first compiled with lean headers (see lean.py).
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import inspect
import os
import shlex
import shutil
import sys
import tarfile
import tempfile
import time
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from grader.protocol import BuildEvent
from grader.worker.compile.lean_headers import lean_headers

with mock.patch.object(torch.cuda, "is_available", return_value=True):
    # It asks, and the answer would start CUDA's driver in a process that is still to be copied: no copy could use it.
    from torch.utils import cpp_extension

LOG_HEAD_CHARACTERS = 24 << 10
"""Of a build log; the first error is what an author needs."""
LOG_TAIL_CHARACTERS = 8 << 10
SCRATCH = Path(tempfile.gettempdir())
"""This sandbox's own: /tmp is not everywhere."""
BUNDLE_FOLDER = SCRATCH / "bundle"
LEAN_FOLDER = SCRATCH / "lean"
SIDE_BY_SIDE = Path(__file__).parent / "nvcc.py"
ERROR_LIMIT = "-fmax-errors=20"
"""PyTorch's headers under a standard that is too old give thirty thousand: 40 s, and 18 MB that nobody reads."""


class MissingClass(Exception):
    """The file has no class of the name asked for."""


class Builder:
    """Records every extension build of this process and serves those that the bundle has."""

    def __init__(self) -> None:
        self.events: list[BuildEvent] = []
        self._bundle: dict[str, Path] = {}
        self._made: dict[str, Path] = {}

    def install(self) -> None:
        """Put this builder between PyTorch and ninja."""
        stock = cpp_extension._write_ninja_file_and_build_library
        signature = inspect.signature(stock)

        def build(*args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments["verbose"] = False  # else ninja's output goes to stdout instead of into the error
            self._build(stock, bound)

        cpp_extension._write_ninja_file_and_build_library = build

    def _build(self, stock: Callable[..., None], bound: inspect.BoundArguments) -> None:
        name, folder = str(bound.arguments["name"]), Path(bound.arguments["build_directory"])
        library = folder / f"{name}.so"
        key = _fingerprint(bound)
        started = time.monotonic()
        if key in self._bundle:
            shutil.copyfile(self._bundle[key], library)
            self._record(name, True, started, cached=True)
            return
        try:
            compile_extension(stock, bound, LEAN_FOLDER / key)
        except Exception as error:
            self._record(name, False, started, log=str(error))
            raise
        self._record(name, True, started)
        self._made[key] = library

    def _record(self, name: str, ok: bool, started: float, cached: bool = False, log: str = "") -> None:
        if len(log) > LOG_HEAD_CHARACTERS + LOG_TAIL_CHARACTERS:
            log = log[:LOG_HEAD_CHARACTERS] + "\n[...]\n" + log[-LOG_TAIL_CHARACTERS:]
        seconds = time.monotonic() - started
        self.events.append(BuildEvent(name=name[:512], ok=ok, seconds=seconds, cached=cached, log=log))

    def take_bundle(self, descriptor: int) -> None:
        """Unpack libraries that an earlier process of the same submission built."""
        BUNDLE_FOLDER.mkdir(exist_ok=True)
        with os.fdopen(descriptor, "rb") as file, tarfile.open(fileobj=file, mode="r:") as archive:
            for member in archive:
                target = BUNDLE_FOLDER / Path(member.name).name
                content = archive.extractfile(member)
                if content is not None:
                    target.write_bytes(content.read())
                    self._bundle[target.stem] = target

    def give_bundle(self, descriptor: int) -> int:
        """Pack every library built here; returns the size in bytes, 0 when there is none."""
        if not self._made:
            os.close(descriptor)
            return 0
        with os.fdopen(descriptor, "wb") as file:
            with tarfile.open(fileobj=file, mode="w:") as archive:
                for key, library in self._made.items():
                    archive.add(library, arcname=f"{key}.so")
            return file.tell()


def compile_extension(stock: Callable[..., None], bound: inspect.BoundArguments, folder: Path) -> None:
    """With lean headers where that may work; what the stock headers say is what counts."""
    told = bound.arguments
    flags = [*told["extra_cflags"], *told["extra_cuda_cflags"]]
    sources = [Path(source) for source in told["sources"]]
    headers = None if told["extra_include_paths"] else lean_headers(sources, flags, folder)
    if headers is not None:
        lean = inspect.BoundArguments(bound.signature, told.copy())
        lean.arguments["extra_include_paths"] = headers
        with contextlib.suppress(RuntimeError), _halves_side_by_side():
            stock(*lean.args, **lean.kwargs)
            return
    if "clang" not in Path(cpp_extension.get_cxx_compiler()).name:  # type: ignore[no-untyped-call]
        told["extra_cflags"] = [*told["extra_cflags"], ERROR_LIMIT]
        told["extra_cuda_cflags"] = [*told["extra_cuda_cflags"], f"-Xcompiler={ERROR_LIMIT}"]
    stock(*bound.args, **bound.kwargs)


@contextlib.contextmanager
def _halves_side_by_side() -> Iterator[None]:
    """nvcc.py in place of nvcc, unless a submission has something else there."""
    home = cpp_extension.CUDA_HOME
    if home is None or "PYTORCH_NVCC" in os.environ:
        yield
        return
    nvcc = Path(home) / "bin" / "nvcc"
    os.environ["PYTORCH_NVCC"] = shlex.join([sys.executable, "-I", str(SIDE_BY_SIDE), str(nvcc)])
    try:
        yield
    finally:
        del os.environ["PYTORCH_NVCC"]


def _fingerprint(bound: inspect.BoundArguments) -> str:
    """SHA-256 over the source files' contents and everything else that ninja would be told."""
    state = hashlib.sha256()
    for name, value in bound.arguments.items():
        if name == "sources":
            for source in value:
                content = Path(source).read_bytes()
                state.update(f"{Path(source).name}:{len(content)}:".encode() + content)
        elif name not in ("build_directory", "verbose"):
            state.update(f"{name}={value!r};".encode())
    return state.hexdigest()


def import_source(source: str, file_name: str, class_name: str) -> tuple[types.ModuleType, type]:
    """Write the source into scratch, so that tracebacks and `inspect` see it, and import it.

    Raises MissingClass, or whatever the import raises.
    """
    path = SCRATCH / "submission" / Path(file_name).name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source, encoding="utf-8")
    name = "submission" if not path.stem.isidentifier() else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise MissingClass(f"the file defines no class {class_name}")
    return module, found
