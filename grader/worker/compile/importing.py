"""Imports a submission, records the extensions that it compiles, and reuses earlier builds.

PyTorch's `load_inline` and `load` are unchanged except for the one function that writes and runs a ninja file: if the
bundle has a library from the same sources and flags, that library is used. Other extensions are first compiled with
lean headers (see lean_headers.py).
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
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any
from unittest import mock

import torch

from grader.protocol import BuildEvent
from grader.worker.compile.kept import Kept
from grader.worker.compile.lean_headers import SHARED_HEADERS, lean_headers, may_be_at_fault

with mock.patch.object(torch.cuda, "is_available", return_value=True):
    # The import calls it, which would start CUDA's driver in a process whose copies then could not use it.
    from torch.utils import cpp_extension

LOG_HEAD_CHARACTERS = 24 << 10
"""Kept from the start of a build log, where the first error is."""
LOG_TAIL_CHARACTERS = 8 << 10
"""Kept from the end of a build log."""
SCRATCH = Path(tempfile.gettempdir())
"""The sandbox's own scratch folder, which is not /tmp in every sandbox."""
LEAN_FOLDER = SCRATCH / "lean"
SIDE_BY_SIDE = Path(__file__).parent / "nvcc.py"
ERROR_LIMIT = "-fmax-errors=20"
"""Under too old a standard PyTorch's headers give thirty thousand errors, which take 40 s and 18 MB."""


class MissingClass(Exception):
    """The file has no class of the requested name."""


class Builder:
    """Records every extension build of this process, and replaces builds by libraries of the bundle."""

    def __init__(self) -> None:
        self.events: list[BuildEvent] = []
        self.kept = Kept(SCRATCH)

    def install(self) -> None:
        """Put this builder between PyTorch and ninja in this process."""
        stock = cpp_extension._write_ninja_file_and_build_library
        signature = inspect.signature(stock)

        def build(*args: Any, **kwargs: Any) -> None:
            bound = signature.bind(*args, **kwargs)
            bound.arguments["verbose"] = False  # else ninja's output goes to stdout, not into the error
            self._build(stock, bound)

        cpp_extension._write_ninja_file_and_build_library = build

    def _build(self, stock: Callable[..., None], bound: inspect.BoundArguments) -> None:
        name, folder = str(bound.arguments["name"]), Path(bound.arguments["build_directory"])
        library = folder / f"{name}.so"
        key = _fingerprint(bound)
        started = monotonic()
        if key in self.kept.libraries:
            shutil.copyfile(self.kept.libraries[key], library)
            self.record(name, True, started, cached=True)
            return
        try:
            compile_extension(stock, bound, LEAN_FOLDER / key)
        except Exception as error:
            self.record(name, False, started, log=str(error))
            raise
        self.record(name, True, started)
        self.kept.libraries[key] = library

    def record(self, name: str, ok: bool, started: float, cached: bool = False, log: str = "") -> None:
        """Add a build that began at `started`, by monotonic()."""
        if len(log) > LOG_HEAD_CHARACTERS + LOG_TAIL_CHARACTERS:
            log = log[:LOG_HEAD_CHARACTERS] + "\n[...]\n" + log[-LOG_TAIL_CHARACTERS:]
        seconds = monotonic() - started
        self.events.append(BuildEvent(name=name[:512], ok=ok, seconds=seconds, cached=cached, log=log))


def compile_extension(stock: Callable[..., None], bound: inspect.BoundArguments, folder: Path) -> None:
    """Compile with lean headers, then with the stock ones if the lean ones may be at fault."""
    arguments = bound.arguments
    flags = [*arguments["extra_cflags"], *arguments["extra_cuda_cflags"]]
    sources = [Path(source) for source in arguments["sources"]]
    headers = None if arguments["extra_include_paths"] else lean_headers(sources, flags, folder)
    if headers is not None:
        lean = inspect.BoundArguments(bound.signature, arguments.copy())
        lean.arguments["extra_include_paths"] = [*headers, str(SHARED_HEADERS)]
        try:
            with _halves_side_by_side():
                stock(*lean.args, **lean.kwargs)
            return
        except RuntimeError as error:
            if not may_be_at_fault(str(error)):
                raise
    if "clang" not in Path(cpp_extension.get_cxx_compiler()).name:  # type: ignore[no-untyped-call]
        arguments["extra_cflags"] = [*arguments["extra_cflags"], ERROR_LIMIT]
        arguments["extra_cuda_cflags"] = [*arguments["extra_cuda_cflags"], f"-Xcompiler={ERROR_LIMIT}"]
    arguments["extra_include_paths"] = [*(arguments["extra_include_paths"] or []), str(SHARED_HEADERS)]
    stock(*bound.args, **bound.kwargs)


@contextlib.contextmanager
def _halves_side_by_side() -> Iterator[None]:
    """Run nvcc.py in place of nvcc, unless the submission has set a compiler itself."""
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
    """Return SHA-256 over the contents of the sources and shared headers and all other arguments of the build."""
    state = hashlib.sha256()
    for header in sorted(SHARED_HEADERS.rglob("*.cuh")):
        state.update(header.read_bytes())
    for name, value in bound.arguments.items():
        if name == "sources":
            for source in value:
                content = Path(source).read_bytes()
                state.update(f"{Path(source).name}:{len(content)}:".encode() + content)
        elif name not in ("build_directory", "verbose"):
            state.update(f"{name}={value!r};".encode())
    return state.hexdigest()


def import_source(source: str, file_name: str, class_name: str) -> type:
    """Write the source to the scratch folder, where tracebacks and `inspect` find it, and import it.

    Returns the class. Raises MissingClass, or whatever the import raises.
    """
    path = SCRATCH / "submission" / Path(file_name).name
    path.parent.mkdir(exist_ok=True)
    path.write_text(source, encoding="utf-8")
    os.utime(path, (0, 0))  # Numba's cache compares it
    name = "submission" if not path.stem.isidentifier() else path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    submitted = getattr(module, class_name, None)
    if not isinstance(submitted, type):
        if submitted is None:
            raise MissingClass(f"the file defines no class {class_name}")
        what = "a function" if inspect.isroutine(submitted) else f"an object of type {type(submitted).__name__}"
        raise MissingClass(f"{class_name} is {what}, no class")
    return submitted
