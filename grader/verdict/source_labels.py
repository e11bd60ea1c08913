"""Labels from a submission's source: from its syntax tree, and from the C++ and CUDA in its strings.

Nothing is imported; comments and docstrings are left out. Every step takes time linear in the length of the source:
regular expressions never scan a stretch twice, and no syntax tree is made of more than `MOST_CODE` characters.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from grader.verdict.python_source import parse, split

MOST_CODE = 32_000
"""Characters of Python outside of comments, blanks and plain strings. Parsing takes microseconds for each, and for
f-strings time that grows with the square of it. Longer sources are read by their strings alone."""

_COMPILERS = {
    "load_inline",
    "load",
    "RawKernel",
    "RawModule",
    "ElementwiseKernel",
    "ReductionKernel",
    "_compile_kernel",
}
_JITS = {"triton", "numba", "cuda", "cupy", "pycuda", "tilelang", "cutlass", "cute", "warp"}
_OPERATIONS = {"matmul", "mm", "bmm", "addmm", "einsum", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d"}
_OPERATIONS |= {"conv_transpose3d", "relu", "gelu", "softmax", "layer_norm", "batch_norm", "tanh", "sigmoid", "sum"}

_ARRAY_MODULES = {"numpy", "scipy"}
_ARRAY_PRODUCTS = {"dot", "matmul", "einsum", "inner", "tensordot", "vdot", "multi_dot", "convolve", "sgemm", "sgemv"}
_ARRAYS = {"numpy", "asarray", "array", "ascontiguousarray", "__array__"}
"""Functions that make a NumPy array, whose `@` and `dot` call BLAS."""

_NATIVE = re.compile(r"#\s*include|__global__|\btorch::|\bat::|\bextern\s+\"C\"|@triton")
_COMMENT = re.compile(r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?")
"""An unclosed comment ends with the text: looking for its end from every start would take quadratic time."""

_OWN_WORK = re.compile(r"__global__|\bparallel_for\b|tl\.program_id")
_PARENTHESIS = re.compile(r"[()]")
_LOOP = re.compile(r"\b(?:for|while)\s*\(")
_NOTHING = re.compile(r"\s*(?:;|\{[\s;]*\})")
"""The body of an empty loop."""
_QUALIFIED_CALL = re.compile(r"(?<![\w:])(?:::)?((?:\w++::)++)(\w++)\s*+\(")
"""A call with all of its namespaces. It starts where a chain of them starts, so that each chain is read once."""

_VENDOR_FUNCTION = re.compile(
    r"matmul|mm|bmm|addmm|baddbmm|linear|einsum|_?conv\w*|layer_norm|batch_norm|scaled_dot\w*"
)
_VENDOR = re.compile(
    r"\.(?:matmul|mm|bmm|addmm)\s*\(|\bcublas\w+|\bcudnn\w+|\bcutlass\b|\bcusparse\w+|\bmkldnn\w*|\bcblas_\w+"
    r"|\b[sdcz](?:gemm|gemv|symm|symv|syrk|trmm|trsm|dot|axpy)_(?:64_)?\b|\bmkl_\w+|\bdnnl\w*"
)
"""PyTorch's products called as methods, and the functions of vendors' libraries, BLAS by its Fortran names."""

_NARROW = re.compile(
    r"\b(?:__half2?|half2?|__nv_bfloat16\w*|nv_bfloat16|bfloat16|float16|at::Half|at::BFloat16|kHalf|kBFloat16|__nv_fp8\w*)\b"
    r"|precision::tf32|\btf32\b|allow_?tf32|CUBLAS_TF32\w*|CUBLAS_COMPUTE_32F_FAST\w*",
    re.IGNORECASE,
)
_GRAPH = re.compile(r"\bcudaGraph\w+|\bcuGraph\w+|\bcudaStreamBeginCapture\b|\bCUDAGraph\b")
_STREAMS = re.compile(r"\b(?:cudaStreamCreate\w*|cuStreamCreate\w*|getStreamFromPool)\b")

_COMPILING = re.compile(rf"\b(?:{'|'.join(sorted(_COMPILERS))})\s*\(|@\s*(?:{'|'.join(sorted(_JITS))}|njit)\b")


class SourceReading(NamedTuple):
    """The result of reading a source."""

    labels: dict[str, bool]
    compiled: bool
    """Whether it hands code to a compiler, or has a function that is compiled by a decorator."""


def read_source(source: str, reference: str) -> SourceReading | None:
    """Labels of a submission's source; None if it is not Python. `reference` is the problem's source."""
    code, strings = split(source)
    if len(code) > MOST_CODE:
        native, compiled = _native_code(strings), bool(_COMPILING.search(code))
        return SourceReading(_native_labels(native, compiled=compiled), compiled)
    try:
        tree, other = parse(source), parse(reference)
        nodes = list(ast.walk(tree))
        native, compiled = _native_code(_strings(nodes)), _compiles(nodes)
        found = _native_labels(native, compiled=compiled)
        found["vendor_library"] |= _multiplies_arrays(nodes)
        found["wraps_reference"] = _wraps(tree, nodes, other)
        found["torch_fallback"] = _falls_back(nodes)
        found["reduced_precision"] |= any(_narrows(node) for node in nodes)
        found["cuda_graph"] |= any(_graphs(node) for node in nodes)
        found["extra_streams"] |= any(_name_of(node) == "Stream" for node in nodes)
    except (SyntaxError, RecursionError):
        return None
    return SourceReading(found, compiled)


def _native_code(strings: Iterable[str]) -> str:
    return "\n".join(_COMMENT.sub(" ", text) for text in strings if _NATIVE.search(text))


def _native_labels(native: str, *, compiled: bool) -> dict[str, bool]:
    """Labels from the C++ and CUDA alone."""
    return {
        "vendor_library": compiled and _calls_vendor(native),
        "no_custom_kernel": not compiled or (bool(native) and not _does_work(native)),
        "reduced_precision": bool(_NARROW.search(native)),
        "cuda_graph": bool(_GRAPH.search(native)),
        "extra_streams": bool(_STREAMS.search(native)),
    }


def _calls_vendor(native: str) -> bool:
    if _VENDOR.search(native):
        return True
    return any(
        not {"at", "torch"}.isdisjoint(found[1].split("::")) and _VENDOR_FUNCTION.fullmatch(found[2])
        for found in _QUALIFIED_CALL.finditer(native)
    )


def _does_work(native: str) -> bool:
    """Whether it has a kernel, or a loop with a body."""
    if _OWN_WORK.search(native):
        return True
    closing = _closing_parentheses(native)
    for found in _LOOP.finditer(native):
        end = closing.get(found.end() - 1)
        if end is None or not _NOTHING.match(native, end + 1):
            return True
    return False


def _closing_parentheses(native: str) -> dict[int, int]:
    """The position of the closing parenthesis for each opening one, in one pass."""
    pairs, open_ones = dict[int, int](), list[int]()
    for found in _PARENTHESIS.finditer(native):
        if found[0] == "(":
            open_ones.append(found.start())
        elif open_ones:
            pairs[open_ones.pop()] = found.start()
    return pairs


def _strings(nodes: list[ast.AST]) -> Iterator[str]:
    """String constants that are not docstrings."""
    unused = {id(text) for text in _docstrings(nodes)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unused:
            yield node.value


def _compiles(nodes: list[ast.AST]) -> bool:
    """Whether something hands code to a compiler, or is compiled by a decorator."""
    for node in nodes:
        if isinstance(node, ast.Call) and _name_of(node.func) in _COMPILERS:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_is_jit, node.decorator_list)):
            return True
    return False


def _is_jit(decorator: ast.expr) -> bool:
    names = {node.id for node in ast.walk(decorator) if isinstance(node, ast.Name)}
    return bool(names & _JITS) or _name_of(decorator.func if isinstance(decorator, ast.Call) else decorator) == "njit"


def _wraps(tree: ast.Module, nodes: list[ast.AST], reference: ast.Module) -> bool:
    model = _class(tree, "ModelNew")
    if model is None:
        return False
    if any(_name_of(base) == "Model" for base in model.bases):
        return True
    if any(isinstance(node, ast.Call) and _name_of(node.func) == "Model" for node in nodes):
        return True
    original = _class(reference, "Model")
    same = original is not None and _forward(original) == _forward(model)
    return same and _forward(model) is not None


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _forward(model: ast.ClassDef) -> str | None:
    """The statements of `forward` without docstring, and the names of its arguments; None without one."""
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            body = [
                part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
            names = [argument.arg for argument in node.args.args]
            return f"{names}" + "".join(ast.dump(part) for part in body)
    return None


def _falls_back(nodes: list[ast.AST]) -> bool:
    """Whether an except branch, or a branch for tensors that are on no GPU, computes with PyTorch."""
    branches = [statement for node in nodes for statement in _fallback_branch(node)]
    if any(isinstance(one, ast.Return) and any(map(_calls_self, ast.walk(one))) for one in branches):
        return True
    # Branches contain branches (elif): each node is looked at once.
    seen: set[int] = set()
    pending: list[ast.AST] = list(branches)
    while pending:
        node = pending.pop()
        if id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, ast.Call) and _name_of(node.func) in _OPERATIONS:
                return True
            pending += ast.iter_child_nodes(node)
    return False


def _fallback_branch(node: ast.AST) -> list[ast.stmt]:
    if isinstance(node, ast.ExceptHandler):
        return node.body
    if isinstance(node, ast.If) and any(_name_of(part) in ("is_cuda", "is_available") for part in ast.walk(node.test)):
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        return node.body if negated else node.orelse
    return []


def _calls_self(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))):
            return True
    return False


def _narrows(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="float16" | "bfloat16" | "half" | "autocast"):
            return True
        case ast.Assign(targets=targets, value=ast.Constant(value=True)):
            return any(_name_of(target) == "allow_tf32" for target in targets)
        case ast.Call(args=[ast.Constant(value="high" | "medium"), *_]):
            return _name_of(node.func) == "set_float32_matmul_precision"
    return False


def _graphs(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="CUDAGraph" | "make_graphed_callables"):
            return True
        case ast.keyword(arg="mode", value=ast.Constant(value="reduce-overhead" | "max-autotune")):
            return True
    return False


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _multiplies_arrays(nodes: Sequence[ast.AST]) -> bool:
    """Whether NumPy or SciPy computes products: by a function, or by `@` in a source that makes arrays."""
    names = {name for node in nodes for name in _array_names(node)}
    if not names:
        return False
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    products = [func for func in calls if _name_of(func) in _ARRAY_PRODUCTS]
    if any(not names.isdisjoint(_roots(func)) for func in products):
        return True
    makes_arrays = any(_name_of(func) in _ARRAYS for func in calls)
    at = any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) for node in nodes)
    method = any(isinstance(func, ast.Attribute) and func.attr == "dot" for func in products)
    return makes_arrays and (at or method)


def _array_names(node: ast.AST) -> Iterator[str]:
    """Names that an import of NumPy or SciPy binds."""
    match node:
        case ast.Import(names=aliases):
            found = (alias for alias in aliases if alias.name.split(".")[0] in _ARRAY_MODULES)
            yield from ((alias.asname or alias.name).split(".")[0] for alias in found)
        case ast.ImportFrom(module=str(module), names=aliases) if module.split(".")[0] in _ARRAY_MODULES:
            yield from (alias.asname or alias.name for alias in aliases)


def _roots(func: ast.expr) -> set[str]:
    """The first name of a dotted name."""
    while isinstance(func, ast.Attribute):
        func = func.value
    return {func.id} if isinstance(func, ast.Name) else set()


def _name_of(node: ast.AST) -> str | None:
    """The last name of a dotted name; None for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None
