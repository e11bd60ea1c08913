"""A timed call does not wait for heap pages that are mapped at the first write."""

import os
import subprocess
import sys

import pytest

PAGES = 2000
TOUCHES = f"""
import ctypes, mmap, os, resource, sys
from grader.worker.timing.host import Heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
heap = Heap()
if sys.argv[1] == "owned":
    heap.own()
block = libc.malloc({PAGES} * mmap.PAGESIZE)  # the heap grows for it
if sys.argv[1] == "owned":
    heap.own()
if sys.argv[2] == "copied" and os.fork():
    os.wait()
    os._exit(0)
if sys.argv[1] == "owned":
    Heap().own()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
ctypes.memset(ctypes.c_void_p(block), 1, {PAGES} * mmap.PAGESIZE)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
"""


def faults(*arguments):
    tunables = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.top_pad=67108864"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLIBC_TUNABLES": tunables}
    command = [sys.executable, "-c", TOUCHES, *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


@pytest.mark.parametrize("how", ["grown", "copied"])
def test_an_owned_heap_is_written_to_without_faults(how):
    if tuple(int(part.partition("-")[0]) for part in os.uname().release.split(".")[:2]) < (5, 14):
        pytest.skip("needs Linux 5.14")
    assert faults("as it is", how) > PAGES // 2
    assert faults("owned", how) < PAGES // 20
