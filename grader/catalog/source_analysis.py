"""Estimates the device and the languages of a submission from its source, without importing it.

Both are heuristics. `--device` overrides the device; the verdict records it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from grader.verdict.python_source import parse

Needs = Literal["cuda", "cpu", "any"]
"""`cuda`: compiles or names CUDA. `cpu`: compiles C++ only. `any`: plain PyTorch."""
Language = Literal["cuda", "cpp", "triton", "torch_compile", "nvrtc", "cupy", "numba", "cute", "tilelang", "pytorch"]
"""`cuda` is CUDA C++ with any compiler; `pytorch` means that there is no other language."""

_LANGUAGE_OF_PACKAGE: dict[str, Language] = {
    "triton": "triton",
    "cupy": "cupy",
    "numba": "numba",
    "cutlass": "cute",
    "tilelang": "tilelang",
    "pynvrtc": "nvrtc",
}
_CUDA_PACKAGES = {"triton", "cupy", "pycuda", "cutlass", "tilelang", "cuda", "pynvrtc"}
_CUDA_DEVICE = re.compile(r"cuda(:\d+)?")
_CUDA_SOURCE = re.compile(r"__global__|<<<")
_IMPORTED = re.compile(r"^[ \t]*(?:import|from)[ \t]+(\w+)", re.MULTILINE)
_CUDA_TEXT = re.compile(r"\bcuda_sources\s*=|\.cu['\"]|__global__")
_CPP_TEXT = re.compile(r"\bcpp_sources\s*=")

_IGNORED_FUNCTIONS = {"get_inputs", "get_init_inputs", "generate_input"}
"""Submissions often repeat the problem's functions with `.cuda()` in them; these copies are never called."""


@dataclass(frozen=True)
class SourceAnalysis:
    """The device and languages of a source."""

    needs: Needs
    languages: tuple[Language, ...]
    """In alphabetical order, at least one."""


def analyse(source: str) -> SourceAnalysis:
    """The device and languages, from one pass over the syntax tree.

    If the source cannot be parsed, its text is searched. Time is linear in the length of the source.
    """
    try:
        tree = parse(source)
    except SyntaxError:
        return _from_text(source)
    seen = _Seen()
    for node in _nodes(tree):
        if isinstance(node, _TELLING):
            seen.add(node)
    return seen.result()


def _from_text(source: str) -> SourceAnalysis:
    packages = set(_IMPORTED.findall(source))
    seen = _Seen(wants_cuda=bool(packages & _CUDA_PACKAGES))
    seen.languages.update(_LANGUAGE_OF_PACKAGE[name] for name in packages & _LANGUAGE_OF_PACKAGE.keys())
    seen.compiles_cuda = bool(_CUDA_TEXT.search(source))
    seen.builds_cpp = bool(_CPP_TEXT.search(source))
    return seen.result()


_TELLING = (ast.Import, ast.ImportFrom, ast.Constant, ast.Attribute, ast.Call)
"""The nodes that `_Seen` looks at."""


def _nodes(tree: ast.Module) -> Iterator[ast.AST]:
    """As `ast.walk`, in another order and twice as fast: batches have tens of thousands of sources."""
    ahead: list[ast.AST] = [
        statement
        for statement in tree.body
        if not (isinstance(statement, ast.FunctionDef) and statement.name in _IGNORED_FUNCTIONS)
    ]
    while ahead:
        node = ahead.pop()
        yield node
        for value in vars(node).values():
            if isinstance(value, list):
                ahead += [one for one in value if isinstance(one, ast.AST)]
            elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
                ahead.append(value)


class _Seen:
    """Findings of the nodes visited so far."""

    def __init__(self, *, wants_cuda: bool = False) -> None:
        self.wants_cuda = wants_cuda
        self.compiles_cuda = self.builds_cpp = self.moves_to_cuda = self.asks_for_devices = False
        self.languages = set[Language]()

    def add(self, node: ast.AST) -> None:
        match node:
            case ast.Import(names=names):
                for name in names:
                    self._add_import(name.name)
            case ast.ImportFrom(module=str(module), names=names):
                for name in names:
                    self._add_import(f"{module}.{name.name}")
            case ast.Constant(value=str(text)):
                self.compiles_cuda |= text.endswith((".cu", ".cuh")) or bool(_CUDA_SOURCE.search(text))
            case ast.Attribute(attr="is_available" | "device_count"):
                self.asks_for_devices = True  # naming a GPU does not mean needing one
            case ast.Attribute(attr="compile", value=ast.Name(id="torch")):
                self.languages.add("torch_compile")
            case ast.Attribute(attr="_compile_kernel"):
                self.languages.add("nvrtc")
            case ast.Call():
                self._add_call(node)

    def _add_import(self, name: str) -> None:
        """`import a.b` is `a.b`, `from a import b` too."""
        package = name.partition(".")[0]
        self.wants_cuda |= package in _CUDA_PACKAGES or f"{name}.".startswith("numba.cuda.")
        if package in _LANGUAGE_OF_PACKAGE:
            self.languages.add(_LANGUAGE_OF_PACKAGE[package])
        if package == "cuda" and "nvrtc" in name.split("."):
            self.languages.add("nvrtc")
        if name == "torch.compile":
            self.languages.add("torch_compile")

    def _add_call(self, call: ast.Call) -> None:
        if _is_filled(_argument(call, "load_inline", 2, "cuda_sources")) or _is_true(call, "with_cuda"):
            self.compiles_cuda = True
        if _is_filled(_argument(call, "load_inline", 1, "cpp_sources")) or _loads(call):
            self.builds_cpp = True
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
            self.moves_to_cuda = True
        values = [*call.args, *(keyword.value for keyword in call.keywords)]
        self.moves_to_cuda |= any(map(_is_cuda_device, values))

    def result(self) -> SourceAnalysis:
        needs: Needs = "cpu" if self.builds_cpp else "any"
        if self.wants_cuda or self.compiles_cuda or (self.moves_to_cuda and not self.asks_for_devices):
            needs = "cuda"
        languages = set(self.languages)
        if self.compiles_cuda:
            languages.add("cuda")
        elif self.builds_cpp:
            languages.add("cpp")
        return SourceAnalysis(needs, tuple(sorted(languages or {"pytorch"})))


def _is_cuda_device(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and bool(_CUDA_DEVICE.fullmatch(node.value))


def _argument(call: ast.Call, function: str, position: int, keyword: str) -> ast.expr | None:
    """The argument that a call gives by keyword or, to this function, by position."""
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


def _loads(call: ast.Call) -> bool:
    """Whether it calls `load` or `load_inline` of torch.utils.cpp_extension; Triton and others have a `load` too."""
    match call.func:
        case ast.Name(id=name):
            return name in ("load", "load_inline")
        case ast.Attribute(attr="load_inline"):
            return True
        case ast.Attribute(attr="load", value=ast.Name(id="cpp_extension") | ast.Attribute(attr="cpp_extension")):
            return True
    return False


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
