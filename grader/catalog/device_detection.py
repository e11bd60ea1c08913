"""Which device a submission was written for, read off its text without importing it.

A guess that only picks the default device: `--device` overrides it, and a wrong guess shows in the verdict.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Literal

Needs = Literal["cuda", "cpu", "any"]

_CUDA_PACKAGES = {"triton", "cupy", "pycuda", "cutlass", "tilelang", "cuda"}
_CUDA_DEVICE = re.compile(r"cuda(:\d+)?")
_CUDA_SOURCE = re.compile(r"__global__|<<<")
_CUDA_TEXT = re.compile(
    r"\bcuda_sources\s*=|\.cu['\"]|__global__|^\s*(import|from)\s+(triton|cupy|pycuda|cutlass|tilelang)\b", re.MULTILINE
)
_CPP_TEXT = re.compile(r"\bcpp_sources\s*=")

_NOT_OURS_TO_CALL = {"get_inputs", "get_init_inputs"}
"""Submissions often repeat the problem's makers with `.cuda()` in them; only the problem's own are called."""


def needs(source: str) -> Needs:
    """`cuda` where it compiles or names CUDA, `cpu` where it compiles C++ only, `any` for plain PyTorch."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return _by_text(source)
    nodes = list(_nodes(tree))
    if any(_wants_cuda(node) for node in nodes):
        return "cuda"
    if not _chooses_itself(nodes) and any(_moves_to_cuda(node) for node in nodes):
        return "cuda"
    return "cpu" if any(_builds_cpp(node) for node in nodes) else "any"


def _by_text(source: str) -> Needs:
    if _CUDA_TEXT.search(source):
        return "cuda"
    return "cpu" if _CPP_TEXT.search(source) else "any"


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        if not (isinstance(statement, ast.FunctionDef) and statement.name in _NOT_OURS_TO_CALL):
            yield from ast.walk(statement)


def _wants_cuda(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(name.name.split(".")[0] in _CUDA_PACKAGES or name.name == "numba.cuda" for name in names)
        case ast.ImportFrom(module=str(module), names=names):
            return module.split(".")[0] in _CUDA_PACKAGES or (
                module == "numba" and any(name.name == "cuda" for name in names)
            )
        case ast.Constant(value=str(text)):
            return text.endswith((".cu", ".cuh")) or bool(_CUDA_SOURCE.search(text))
        case ast.Call():
            return _is_filled(_argument(node, "load_inline", 2, "cuda_sources")) or _is_true(node, "with_cuda")
    return False


def _builds_cpp(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    return _is_filled(_argument(node, "load_inline", 1, "cpp_sources")) or _callee(node) in ("load", "load_inline")


def _moves_to_cuda(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
        return True
    values = [*node.args, *(keyword.value for keyword in node.keywords)]
    return any(_is_cuda_device(value) for value in values)


def _chooses_itself(nodes: list[ast.AST]) -> bool:
    """It asks at run time whether there is a GPU, so that naming one does not mean needing one."""
    return any(isinstance(node, ast.Attribute) and node.attr in ("is_available", "device_count") for node in nodes)


def _is_cuda_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_CUDA_DEVICE.fullmatch(node.value))


def _argument(call: ast.Call, function: str, position: int, keyword: str) -> ast.expr | None:
    for given in call.keywords:
        if given.arg == keyword:
            return given.value
    if _callee(call) == function and len(call.args) > position:
        return call.args[position]
    return None


def _callee(call: ast.Call) -> str | None:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _is_filled(node: ast.expr | None) -> bool:
    match node:
        case None:
            return False
        case ast.Constant(value=value):
            return bool(value)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return any(_is_filled(item) for item in items)
    return True


def _is_true(call: ast.Call, keyword: str) -> bool:
    return any(
        given.arg == keyword and isinstance(given.value, ast.Constant) and given.value.value is True
        for given in call.keywords
    )
