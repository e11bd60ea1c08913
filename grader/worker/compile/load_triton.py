"""Loads Triton, and has it compute the hash over its own files, which a first kernel waits for.

The hash is part of the key of each compiled kernel, reads 400 MB, and takes a third of a second.
"""

from __future__ import annotations

import contextlib

with contextlib.suppress(ImportError):  # not installed, or of a version that has the function elsewhere
    from triton.runtime.cache import triton_key

    triton_key()
