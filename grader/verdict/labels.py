"""Labels that inform and do not reject, from a submission's source, a profile of it and its diagnoses.

Each of them adds labels, and none removes one. A source can be written to mislead this reading; that changes no
verdict.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from grader.verdict.precision import Precision
from grader.verdict.source_labels import read_source

LANGUAGES: dict[str, str] = {
    "cuda": "It has CUDA C++ of its own, whichever compiler takes it.",
    "cpp": "It has C++ of its own, and no CUDA.",
    "triton": "It uses Triton.",
    "torch_compile": "It uses torch.compile.",
    "nvrtc": "It compiles CUDA with NVRTC, as torch.cuda._compile_kernel does.",
    "cupy": "It uses CuPy.",
    "numba": "It uses Numba.",
    "cute": "It uses the CuTe DSL, CUTLASS's Python package.",
    "tilelang": "It uses TileLang.",
    "pytorch": "It is in none of the other languages.",
}
"""Each language with its meaning. A source may have several."""
LABELS: dict[str, str] = {
    "wraps_reference": "It computes by the reference's own module or by the same statements.",
    "torch_fallback": "Where its kernel fails or does not apply, PyTorch computes instead.",
    "vendor_library": "Matrix products or convolutions of PyTorch, NumPy or a vendor do part of its work.",
    "no_custom_kernel": "It compiles no kernel or loop of its own, or none of them ran.",
    "reduced_precision": "In a problem of float32, it computes in a narrower type or allows TensorFloat-32.",
    "narrow_inputs": "It is wrong for inputs that the reference takes and get_inputs does not draw.",
    "cuda_graph": "It captures and replays CUDA graphs.",
    "extra_streams": "It makes CUDA streams of its own.",
    **LANGUAGES,
}
"""Each label with its meaning, in the order in which a verdict shows them."""

_LIBRARY_KERNEL = re.compile(
    r"gemm|gemv|xmma|cutlass|cublas|cudnn|nvjet|winograd|implicit_con|convolve|dgrad|wgrad|fprop|flash_fwd|flash_bwd"
    r"|^(?:sm\d\d|volta|turing|ampere|hopper)_",
    re.IGNORECASE,
)
_LIBRARY_OPERATOR = re.compile(
    r"^aten::(?:mm|bmm|addmm|baddbmm|addmv|mv|dot|_?convolution\w*|mkldnn_\w+|_scaled_dot\w+|thnn_conv\w*|slow_conv\w*)$"
    r"|^mkl(?:dnn)?::"
)
_TORCH_KERNEL = re.compile(r"\bat::|\bc10::|\bcub::|\bthrust::|^Mem(?:cpy|set)\b|^triton_\w+_fused_")
_NARROW_KERNEL = re.compile(
    r"tf32|bf16|bfloat16|__half\b|c10::Half|(?:^|_)f16|fp16|[hs](?:16816|1688|884)", re.IGNORECASE
)


_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Seen:
    """A profile of one forward and backward: calls by name of kernels, or of operators on the CPU."""

    on_gpu: bool
    calls: Mapping[str, int]
    reference_calls: Mapping[str, int]
    streams: int = 0
    graphs: int = 0


def labels(
    source: str,
    reference: str,
    seen: Seen | None = None,
    codes: Collection[str] = (),
    languages: Collection[str] = (),
    precision: Precision = Precision.FP32,
) -> tuple[str, ...]:
    """The labels of a submission; only `languages` for a source that is not Python.

    A precision is not reduced where the reference or the `precision` of the grading has it already. `codes` are its
    diagnoses'. Takes time linear in the length of the source.
    """
    read = read_source(source, reference)
    if read is None:
        return tuple(label for label in LABELS if label in languages)
    held = {label for label, holds in read.labels.items() if holds} | {*codes, *languages}
    if seen is not None and seen.calls:
        held |= {label for label, holds in _ran(seen, source, compiled=read.compiled).items() if holds}
    if precision.meaning.dtype is not None or _is_narrow(reference):
        held.discard("reduced_precision")
    return tuple(label for label in LABELS if label in held)


def _is_narrow(reference: str) -> bool:
    """Whether a problem names a type of 16 bits itself, or allows TensorFloat-32."""
    read = read_source(reference, "")
    return read is not None and read.labels["reduced_precision"]


def _ran(seen: Seen, source: str, *, compiled: bool) -> dict[str, bool]:
    found = {"wraps_reference": dict(seen.calls) == dict(seen.reference_calls)}
    if not seen.on_gpu:  # an extension is no operator, so that a profile of the CPU does not show it
        return found | {"vendor_library": any(_LIBRARY_OPERATOR.search(name) for name in seen.calls)}
    words = set(_WORD.findall(source))
    own = {name for name in seen.calls if _is_own(name, words)}
    others = [name for name in seen.calls if name not in own]
    return found | {
        "torch_fallback": compiled and not own,
        "vendor_library": any(_LIBRARY_KERNEL.search(name) for name in others),
        "no_custom_kernel": not own,
        "reduced_precision": any(_NARROW_KERNEL.search(name) for name in others),
        "cuda_graph": seen.graphs > 0,
        "extra_streams": seen.streams > 1,
    }


def _is_own(kernel: str, words: Collection[str]) -> bool:
    """Whether the source has a function of that name, or no library is known to have such a kernel."""
    called = re.sub(r"^\s*(?:void|int|float)\s+", "", kernel)
    base = re.split(r"[<(]", called.replace("(anonymous namespace)::", ""), maxsplit=1)[0].split("::")[-1].strip()
    if all(word in words for word in _WORD.findall(base)) and "at::native" not in kernel:
        return True
    return not (_TORCH_KERNEL.search(kernel) or _LIBRARY_KERNEL.search(kernel))
