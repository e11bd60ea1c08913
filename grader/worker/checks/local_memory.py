"""Local memory per thread of built extensions' and Triton's kernels, as the driver reports it.

A compiler puts spilled registers there, and arrays that do not fit into registers. CUPTI does not report it. The code
is read from the files: `.nv_fatbin` of a library, which holds one container for each compiled source, or a cubin.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from grader.worker.session import Session

CONTAINER = 0xBA55ED50
"""First four bytes of a container in `.nv_fatbin`; then its version and the size of its header in two bytes each, and
the size of what follows in eight."""
LOCAL_SIZE_BYTES = 3
"""CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES."""
MOST_FILES = 200
"""Cubins that are read at most: a search for kernels leaves many."""


def local_bytes(session: Session) -> dict[str, int]:
    """Bytes by the kernel's name as a profiler shows it; empty where the driver cannot say."""
    found: dict[str, int] = {}
    with contextlib.suppress(OSError, AttributeError):
        driver = ctypes.CDLL("libcuda.so.1")
        for image in _images(session):
            for name, value in _functions(driver, image):
                found[name] = max(value, found.get(name, 0))
    return found


def _images(session: Session) -> Iterator[bytes]:
    for library in session.builder.kept.libraries.values():
        yield from containers(section(library.read_bytes(), b".nv_fatbin"))
    triton = Path(os.environ.get("TRITON_CACHE_DIR", "/nonexistent"))
    inductor = Path(os.environ.get("TORCHINDUCTOR_CACHE_DIR", "/nonexistent"))
    cubins = [path for folder in (triton, inductor) for path in folder.rglob("*.cubin")]
    for path in cubins[:MOST_FILES]:
        yield path.read_bytes()


def section(library: bytes, wanted: bytes) -> bytes:
    """The section of a 64-bit ELF file with this name; empty if there is none."""
    if library[:5] != b"\x7fELF\x02":
        return b""
    (table,) = struct.unpack_from("<Q", library, 40)
    size, count, names = struct.unpack_from("<HHH", library, 58)
    headers = [struct.unpack_from("<IIQQQQ", library, table + index * size) for index in range(count)]
    base = headers[names][4]
    for name, _, _, _, offset, length in headers:
        if library[base + name : base + name + len(wanted) + 1] == wanted + b"\0":
            return library[offset : offset + length]
    return b""


def containers(content: bytes) -> Iterator[bytes]:
    """Each container with device code in a section `.nv_fatbin`."""
    at = 0
    while at + 16 <= len(content):
        magic, _, header, size = struct.unpack_from("<IHHQ", content, at)
        if magic != CONTAINER:
            at += 8  # padding
            continue
        yield content[at : at + header + size]
        at += header + size


def _functions(driver: ctypes.CDLL, image: bytes) -> Iterator[tuple[str, int]]:
    """Name and local bytes of each kernel in the image."""
    module = ctypes.c_void_p()
    if driver.cuModuleLoadData(ctypes.byref(module), image):
        return
    try:
        count = ctypes.c_uint()
        if driver.cuModuleGetFunctionCount(ctypes.byref(count), module):
            return
        functions = (ctypes.c_void_p * count.value)()
        if driver.cuModuleEnumerateFunctions(functions, count, module):
            return
        for function in functions:
            name, value = ctypes.c_char_p(), ctypes.c_int()
            handle = ctypes.c_void_p(function)
            unnamed = driver.cuFuncGetName(ctypes.byref(name), handle)
            if not unnamed and not driver.cuFuncGetAttribute(ctypes.byref(value), LOCAL_SIZE_BYTES, handle):
                yield demangled(name.value or b""), max(value.value, 0)
    finally:
        driver.cuModuleUnload(module)


def demangled(name: bytes) -> str:
    """A C++ symbol as source text; unchanged if it is none."""
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL("libstdc++.so.6")
        library.__cxa_demangle.restype = ctypes.c_void_p
        status = ctypes.c_int()
        text = library.__cxa_demangle(name, None, None, ctypes.byref(status))
        if text and status.value == 0:
            try:
                return ctypes.string_at(text).decode(errors="replace")
            finally:
                ctypes.CDLL(None).free(ctypes.c_void_p(text))
    return name.decode(errors="replace")
