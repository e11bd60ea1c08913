"""Which of PyTorch's headers a source needs: the operators that it names, and not the other fifteen hundred.

A declaration can change what a source means only if the source can name it. So the lean headers leave out what no word
of the source refers to; where a source may learn of headers in another way, `lean_headers` has no offer. What does not
compile with the lean headers is compiled with the stock ones, and what those say is what counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

LEAN_HEADERS = Path(__file__).parent / "include"
TORCH_HEADERS = Path(torch.__file__).parent / "include"
FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"

_NAMED = (
    ("ATen/Context.h", r"[cC]ontext|\bat::(has|init|manual)\w+"),
    ("ATen/DeviceGuard.h", r"\bdevice_of\b|\bDeviceGuard\b"),
    ("ATen/Formatting.h", r"(?<!<)<<(?!<)|\bprint\b"),
    ("ATen/ScalarOps.h", r"\bscalar_to_tensor\b|\bwrapped_scalar_tensor\b"),
    ("ATen/TensorGeometry.h", r"\bTensorGeometry\b"),
    ("ATen/TensorIndexing.h", r"\bindexing\b|\bTensorIndex\b|\bindex\w*\s*\(\s*\{|\bSlice\b"),
    ("c10/core/InferenceMode.h", r"\bInferenceMode\b"),
)
"""Parts of ATen/ATen.h beside the operators, with what in a source refers to them."""

_BEYOND = re.compile(
    r"""\#\s*include\s*"                                            # a text that is not looked at here
      | \#\s*include\s*<(?!torch/(?:extension|types)\.h)torch/      # more of PyTorch's than torch/types.h
      | \#\s*include\s*<(?:ATen/(?:ATen|Functions|NativeFunctions)|pybind11/\w+)\.h
      | \#\s*include\s*[^<"\s]                                      # a macro's value
      | ^\s*\#\s*(?:el)?if.*\b(?:AT|TORCH|C10|CAFFE|PYBIND|PY)\w*_  # asks what headers define
      | \b__has_include | \#\#                                      # asks what headers there are; makes names
      | \btorch\s*::\s*(?!Tensor\b)\w+\s*::                             # torch::nn, torch::autograd, torch::jit ...
      | \bnamespace\s+(?:\w+\s*=\s*(?:::\s*)?)?(?:torch|at|c10)\b  # names them without saying whose they are
      | \bTORCH_LIBRARY
    """,
    re.VERBOSE | re.MULTILINE,
)
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_CALLED = re.compile(r"(?<![\w.:])(?<!->)([A-Za-z_]\w*)\s*\(")
"""Free functions called without a namespace: one may be found through the type of its arguments, at::Tensor."""
_INCLUDES_ELSEWHERE = re.compile(r"^(-I|-i|--include|-include|-Xclang|@)|include")


def lean_headers(sources: Sequence[Path], flags: Sequence[str], folder: Path) -> list[str] | None:
    """Folders to search before PyTorch's own, made for these sources; None where the stock headers have to do.

    `folder` is where headers may be written.
    """
    texts = {path: _COMMENT.sub(r"\1 ", path.read_text(errors="replace")) for path in sources}
    if any(_BEYOND.search(text) for text in texts.values()) or any(map(_INCLUDES_ELSEWHERE.search, flags)):
        return None
    cuda = "\n".join([*(text for path, text in texts.items() if path.suffix == ".cu"), *flags])
    host = "\n".join([*(text for path, text in texts.items() if path.suffix != ".cu"), *flags])
    if re.search(r"\bpy::|pybind11|PYBIND11", cuda):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for name, of_cuda, of_host in (
        ("grader_operators.h", _operators(cuda), _operators(host)),
        ("grader_whole.h", _whole(cuda, in_cuda=True), _whole(host, in_cuda=False)),
    ):
        (folder / name).write_text(f"#ifdef __CUDACC__\n{of_cuda}\n#else\n{of_host}\n#endif\n")
    return [str(LEAN_HEADERS), str(folder)]


def _operators(text: str) -> str:
    """`empty`, `add_` and `sum_out` are declared in the headers of empty, add and sum."""
    called = set(re.findall(r"\b(?:at|torch)\s*::\s*(\w+)", text)) | set(_CALLED.findall(text))
    names = called | {re.sub(r"_(symint|outf?)?$", "", name) for name in called}
    return "\n".join(f"#include <ATen/ops/{name}.h>" for name in sorted(names & _operator_headers()))


def _whole(text: str, *, in_cuda: bool) -> str:
    lines = [f"#include <{header}>" for header, pattern in _NAMED if re.search(pattern, text)]
    factories = set(re.findall(r"\btorch\s*::\s*(\w+)", text)) & _factories().keys()
    if factories:
        whole = f"#include <{FACTORIES}>"
        if in_cuda and all(_factories()[name] for name in factories):
            # Device code is compiled apart, and a function of the host is only declared there.
            declared = "\n".join(line for name in sorted(factories) for line in _factories()[name])
            whole = f"#ifdef __CUDA_ARCH__\nnamespace torch {{\n{declared}\n}}\n#else\n{whole}\n#endif"
        lines.append(whole)
    return "\n".join(lines)


@cache
def _operator_headers() -> set[str]:
    inner = re.compile(r"_(ops|native|dispatch)$")
    return {path.stem for path in (TORCH_HEADERS / "ATen/ops").glob("*.h") if not inner.search(path.stem)}


@cache
def _factories() -> dict[str, list[str]]:
    """torch::empty and its like, which are not at::empty: name to declarations; none where they span lines."""
    text = (TORCH_HEADERS / FACTORIES).read_text()
    found: dict[str, list[str]] = {name: [] for name in re.findall(r"^inline at::Tensor (\w+)\(", text, re.MULTILINE)}
    for name, rest in re.findall(r"^inline at::Tensor (\w+)(\(.*\)) \{$", text, re.MULTILINE):
        found[name].append(f"at::Tensor {name}{rest};")
    return found | {"tensor": [], "from_blob": []}
