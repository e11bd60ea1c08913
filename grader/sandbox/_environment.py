"""The environment inside: fixed and small. Nothing of the grader's own environment passes."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

USER = "sandbox"


def inside(scratch: str, extra: Mapping[str, str], *, gpu: bool) -> dict[str, str]:
    """`extra` wins. PATH starts with the grader's interpreter, so `python` means the same inside."""
    search = (str(Path(sys.executable).parent), "/usr/local/cuda/bin", "/usr/local/bin", "/usr/bin", "/bin")
    fixed = {
        "PATH": ":".join(search),
        "HOME": scratch,
        "TMPDIR": scratch,
        "USER": USER,
        "LOGNAME": USER,
        "LANG": "C.UTF-8",
        "XDG_CACHE_HOME": f"{scratch}/.cache",
        "TORCH_EXTENSIONS_DIR": f"{scratch}/.cache/torch_extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{scratch}/.cache/torchinductor",
        "TRITON_CACHE_DIR": f"{scratch}/.cache/triton",
        "CUDA_CACHE_PATH": f"{scratch}/.cache/cuda",
        # A compiler cache that outlives the sandbox would let one submission poison the next one's build.
        "TORCH_NO_COMPILER_WRAPPER": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
    }
    if gpu and (library_path := os.environ.get("LD_LIBRARY_PATH")):
        fixed["LD_LIBRARY_PATH"] = library_path  # where some hosts keep the driver's libraries
    return fixed | dict(extra)
