"""Chooses the PyTorch headers that a source needs: those of the operators that it names.

A declaration can change the meaning of a source only if the source can name it. So the lean headers omit what no word
of the source refers to; for a source that may depend on headers in another way, `lean_headers` returns None. A source
that does not compile with the lean headers is compiled with the stock ones, whose errors are the ones reported; unless
no header can change the error.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

LEAN_HEADERS = Path(__file__).parent / "include"
"""Headers that are found before PyTorch's of the same names."""
SHARED_HEADERS = Path(__file__).parents[2] / "device_code"
"""Device code that every submission can include, as `<kernels/conv2d.cuh>`."""
TORCH_HEADERS = Path(torch.__file__).parent / "include"
FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"
"""Declares torch::empty and similar functions."""

_FACTORIES_NEED = """\
#define GRADER_LEAN
#include <ATen/DeviceAccelerator.h>
#include <ATen/TracerMode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/variable.h>
#undef GRADER_LEAN"""

_NAMED = (
    ("ATen/Context.h", r"[cC]ontext|\bat::(has|init|manual)\w+"),
    ("ATen/DeviceGuard.h", r"\bdevice_of\b|\bDeviceGuard\b"),
    ("ATen/Formatting.h", r"(?<!<)<<(?!<)|\bprint\b"),
    ("ATen/ScalarOps.h", r"\bscalar_to_tensor\b|\bwrapped_scalar_tensor\b"),
    ("ATen/TensorGeometry.h", r"\bTensorGeometry\b"),
    ("ATen/TensorIndexing.h", r"\bindexing\b|\bTensorIndex\b|\bindex\w*\s*\(\s*\{|\bSlice\b"),
    ("c10/core/InferenceMode.h", r"\bInferenceMode\b"),
)
"""Parts of ATen/ATen.h other than operators, with a pattern for sources that refer to them."""

_BEYOND = re.compile(
    r"""\#\s*include\s*"                                            # a file that is not inspected here
      | \#\s*include\s*<(?!torch/(?:extension|types)\.h)torch/      # more of PyTorch's than torch/types.h
      | \#\s*include\s*<(?:ATen/(?:ATen|Functions|NativeFunctions)|pybind11/\w+)\.h
      | \#\s*include\s*[^<"\s]                                      # a macro's value
      | ^\s*\#\s*(?:el)?if.*\b(?:AT|TORCH|C10|CAFFE|PYBIND|PY)\w*_  # tests what headers define
      | \b__has_include | \#\#                                      # tests which headers exist; makes names
      | \btorch\s*::\s*(?!Tensor\b)\w+\s*::                             # torch::nn, torch::autograd, torch::jit ...
      | \bnamespace\s+(?:\w+\s*=\s*(?:::\s*)?)?(?:torch|at|c10)\b  # names them without their namespace
      | \bTORCH_LIBRARY
    """,
    re.VERBOSE | re.MULTILINE,
)
_COMMENT = re.compile(r"""("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/""", re.DOTALL)
_CALLED = re.compile(r"(?<![\w.:])(?<!->)([A-Za-z_]\w*)\s*\(")
"""Functions called without a namespace, which may be found through the type of their arguments, at::Tensor."""
_INCLUDES_ELSEWHERE = re.compile(r"^(-I|-i|--include|-include|-Xclang|@)|include")
_SHARED_HEADER = re.compile(r"#\s*include\s*<(kernels/[\w.]+)>")
_ERROR = re.compile(r"\berror *:|\bfatal *:|\bError:")
_WHATEVER_THE_HEADERS = re.compile(r"fatal error: [^:]+: No such file or directory|\.s:\d+: Error:|^ptxas ")
"""Errors of missing files, of the assembler and of ptxas. A missing name may be the headers' fault."""


def may_be_at_fault(log: str) -> bool:
    """Whether a build that failed with this log may pass with the stock headers."""
    errors = [line for line in log.splitlines() if _ERROR.search(line)]
    return not errors or not all(map(_WHATEVER_THE_HEADERS.search, errors))


def lean_headers(sources: Sequence[Path], flags: Sequence[str], folder: Path) -> list[str] | None:
    """Write headers for these sources to `folder`, and return the folders to search before PyTorch's own.

    Returns None if the sources need the stock headers.
    """
    texts = {path: _COMMENT.sub(r"\1 ", path.read_text(errors="replace")) for path in sources}
    if any(_BEYOND.search(text) for text in texts.values()) or any(map(_INCLUDES_ELSEWHERE.search, flags)):
        return None
    cuda = "\n".join([*(text for path, text in texts.items() if path.suffix == ".cu"), *flags])
    host = "\n".join([*(text for path, text in texts.items() if path.suffix != ".cu"), *flags])
    if re.search(r"\bpy::|pybind11|PYBIND11", cuda):
        return None
    cuda, host = _with_shared_headers(cuda), _with_shared_headers(host)
    folder.mkdir(parents=True, exist_ok=True)
    for name, of_cuda, of_host in (
        ("grader_operators.h", _operators(cuda), _operators(host)),
        ("grader_rest.h", _rest(cuda), _rest(host)),
    ):
        (folder / name).write_text(f"#ifdef __CUDACC__\n{of_cuda}\n#else\n{of_host}\n#endif\n")
    return [str(LEAN_HEADERS), str(folder)]


def _with_shared_headers(text: str) -> str:
    """The text, and that of the SHARED_HEADERS which it includes, which name operators too."""
    found = set[str]()
    while missing := set(_SHARED_HEADER.findall(text)) - found:
        found |= missing
        files = (SHARED_HEADERS / name for name in sorted(missing))
        text += "".join(_COMMENT.sub(r"\1 ", path.read_text()) for path in files if path.is_file())
    return text


def _operators(text: str) -> str:
    """Include the operators that the text calls; `add_` and `sum_out` are declared by add and sum."""
    called = set(re.findall(r"\b(?:at|torch)\s*::\s*(\w+)", text)) | set(_CALLED.findall(text))
    names = called | {re.sub(r"_(symint|outf?)?$", "", name) for name in called}
    return "\n".join(f"#include <ATen/ops/{name}.h>" for name in sorted(names & _operator_headers()))


def _rest(text: str) -> str:
    lines = [f"#include <{header}>" for header, pattern in _NAMED if re.search(pattern, text)]
    named = sorted(set(re.findall(r"\btorch\s*::\s*(\w+)", text)) & _factories().keys())
    if not named:
        return "\n".join(lines)
    if not all(_factories()[name] for name in named):
        return "\n".join([*lines, f"#include <{FACTORIES}>"])
    signatures = "\n".join(f"{signature};" for name in named for signature, _ in _factories()[name])
    definitions = "\n".join(f"inline {signature} {body}" for name in named for signature, body in _factories()[name])
    lines += [
        "#ifdef __CUDA_ARCH__",  # device code is compiled separately and needs host functions only declared
        f"namespace torch {{\n{signatures}\n}}",
        f"#else\n{_FACTORIES_NEED}\nnamespace torch {{\n{definitions}\n}}\n#endif",
    ]
    return "\n".join(lines)


@cache
def _operator_headers() -> set[str]:
    inner = re.compile(r"_(ops|native|dispatch)$")
    return {path.stem for path in (TORCH_HEADERS / "ATen/ops").glob("*.h") if not inner.search(path.stem)}


@cache
def _factories() -> dict[str, list[tuple[str, str]]]:
    """Map functions such as torch::empty (not at::empty) to signatures and bodies; irregular ones to none."""
    text = (TORCH_HEADERS / FACTORIES).read_text()
    factories: dict[str, list[tuple[str, str]]] = {
        name: [] for name in re.findall(r"^inline at::Tensor (\w+)\(", text, re.M)
    }
    for signature, name, body in re.findall(r"^inline (at::Tensor (\w+)\(.*\)) (\{\n(?: .*\n)*\}\n)", text, re.M):
        factories[name].append((signature, body))
    return factories | {"tensor": [], "from_blob": []}
