"""A timed call does not wait for heap pages that are mapped at the first write."""

import os
import subprocess
import sys

import pytest

PAGES = 2000
TOUCHES = f"""
import ctypes, mmap, resource, sys
from grader.worker.timing.host import Heap

libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
heap = Heap()
if sys.argv[1] == "owned":
    heap.own()
block = libc.malloc({PAGES} * mmap.PAGESIZE)  # the heap grows for it
if sys.argv[1] == "owned":
    heap.own()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
ctypes.memset(ctypes.c_void_p(block), 1, {PAGES} * mmap.PAGESIZE)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, flush=True)
"""


def faults(how):
    tunables = "glibc.malloc.mmap_threshold=1073741824:glibc.malloc.top_pad=67108864"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "GLIBC_TUNABLES": tunables}
    command = [sys.executable, "-c", TOUCHES, how]
    return int(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def test_what_the_heap_grew_by_is_written_to_without_faults():
    if tuple(int(part.partition("-")[0]) for part in os.uname().release.split(".")[:2]) < (5, 14):
        pytest.skip("needs Linux 5.14")
    assert faults("as it is") > PAGES // 2
    assert faults("owned") < PAGES // 20
