"""Labels that inform and do not reject: read off a submission's text, and off the kernels that ran.

From the syntax tree, without importing anything, and from the C++ and CUDA in its strings, comments and docstrings left
out; then from what a profiler saw. Either may add a label, neither takes one away. Whoever wants to mislead a reader
can, and gains nothing by it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

LABELS: dict[str, str] = {
    "wraps_reference": "It computes by the reference's own module or by the same statements.",
    "torch_fallback": "Where its kernel fails or does not apply, PyTorch computes instead.",
    "vendor_library": "PyTorch's or a vendor's matrix products or convolutions do part of its work.",
    "no_custom_kernel": "It compiles no kernel or loop of its own, or none of them ran.",
    "reduced_precision": "It computes in a narrower type than float32, or allows TensorFloat-32.",
    "cuda_graph": "It captures and replays CUDA graphs.",
    "extra_streams": "It makes CUDA streams of its own.",
}
"""Each with what it means, in the order in which a verdict shows them."""

_COMPILERS = {
    "load_inline",
    "load",
    "RawKernel",
    "RawModule",
    "ElementwiseKernel",
    "ReductionKernel",
    "_compile_kernel",
}
_JITS = {"triton", "numba", "cupy", "pycuda", "tilelang", "cutlass", "cute", "warp"}
_OPERATIONS = {"matmul", "mm", "bmm", "addmm", "einsum", "linear", "conv1d", "conv2d", "conv3d", "conv_transpose2d"}
_OPERATIONS |= {"conv_transpose3d", "relu", "gelu", "softmax", "layer_norm", "batch_norm", "tanh", "sigmoid", "sum"}

_NATIVE = re.compile(r"#\s*include|__global__|\btorch::|\bat::|\bextern\s+\"C\"|@triton")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OWN_WORK = re.compile(r"__global__|\bfor\s*\(|\bwhile\s*\(|\bparallel_for\b|tl\.program_id")
_VENDOR = re.compile(
    r"\b(?:at|torch)::(?:\w+::)*(?:matmul|mm|bmm|addmm|baddbmm|linear|einsum|_?conv\w*|layer_norm|batch_norm|scaled_dot\w*)\s*\("
    r"|\.(?:matmul|mm|bmm|addmm)\s*\(|\bcublas\w+|\bcudnn\w+|\bcutlass\b|\bcusparse\w+|\bmkldnn\w*|\bcblas_\w+"
)
_NARROW = re.compile(
    r"\b(?:__half2?|half2?|__nv_bfloat16\w*|nv_bfloat16|bfloat16|float16|at::Half|at::BFloat16|kHalf|kBFloat16|__nv_fp8\w*)\b"
    r"|precision::tf32|\btf32\b|allow_?tf32|CUBLAS_TF32\w*|CUBLAS_COMPUTE_32F_FAST\w*",
    re.IGNORECASE,
)
_GRAPH = re.compile(r"\bcudaGraph\w+|\bcuGraph\w+|\bcudaStreamBeginCapture\b|\bCUDAGraph\b")
_STREAMS = re.compile(r"\b(?:cudaStreamCreate\w*|cuStreamCreate\w*|getStreamFromPool)\b")


_LIBRARY_KERNEL = re.compile(
    r"gemm|gemv|xmma|cutlass|cublas|cudnn|nvjet|winograd|implicit_con|convolve|dgrad|wgrad|fprop|flash_fwd|flash_bwd"
    r"|^(?:sm\d\d|volta|turing|ampere|hopper)_",
    re.IGNORECASE,
)
_LIBRARY_OPERATOR = re.compile(
    r"^aten::(?:mm|bmm|addmm|baddbmm|addmv|mv|dot|_?convolution\w*|mkldnn_\w+|_scaled_dot\w+|thnn_conv\w*|slow_conv\w*)$"
)
_TORCH_KERNEL = re.compile(r"\bat::|\bc10::|\bcub::|\bthrust::|^Mem(?:cpy|set)\b|^triton_\w+_fused_")
_NARROW_KERNEL = re.compile(
    r"tf32|bf16|bfloat16|__half\b|c10::Half|(?:^|_)f16|fp16|[hs](?:16816|1688|884)", re.IGNORECASE
)


@dataclass(frozen=True)
class Seen:
    """What a profiler saw of one forward and backward: names with calls, of kernels, or of operators on the CPU."""

    on_gpu: bool
    calls: Mapping[str, int]
    reference_calls: Mapping[str, int]
    streams: int = 0
    graphs: int = 0


def labels(source: str, reference: str, seen: Seen | None = None) -> tuple[str, ...]:
    """Of a submission for a problem, both as text, and of what ran; none for a text that is not Python."""
    found = _read(source, reference)
    if found is None:
        return ()
    if seen is not None and seen.calls:
        for label, holds in _ran(seen, source, compiled=_compiles(list(ast.walk(ast.parse(source))))).items():
            found[label] |= holds
    return tuple(label for label in LABELS if found[label])


def _ran(seen: Seen, source: str, *, compiled: bool) -> dict[str, bool]:
    found = {"wraps_reference": dict(seen.calls) == dict(seen.reference_calls)}
    if not seen.on_gpu:  # extensions are no operators: what they do cannot be seen there
        return found | {"vendor_library": any(_LIBRARY_OPERATOR.search(name) for name in seen.calls)}
    own = [name for name in seen.calls if _is_own(name, source)]
    others = [name for name in seen.calls if name not in own]
    return found | {
        "torch_fallback": compiled and not own,
        "vendor_library": any(_LIBRARY_KERNEL.search(name) for name in others),
        "no_custom_kernel": not own,
        "reduced_precision": any(_NARROW_KERNEL.search(name) for name in others),
        "cuda_graph": seen.graphs > 0,
        "extra_streams": seen.streams > 1,
    }


def _is_own(kernel: str, source: str) -> bool:
    """The text has a function of that name, or nobody else is known to have such a kernel."""
    called = re.sub(r"^\s*(?:void|int|float)\s+", "", kernel)
    base = re.split(r"[<(]", called.replace("(anonymous namespace)::", ""), maxsplit=1)[0].split("::")[-1].strip()
    if re.search(rf"\b{re.escape(base)}\b", source) and "at::native" not in kernel:
        return True
    return not (_TORCH_KERNEL.search(kernel) or _LIBRARY_KERNEL.search(kernel))


def _read(source: str, reference: str) -> dict[str, bool] | None:
    """What the text says."""
    try:
        tree, other = ast.parse(source), ast.parse(reference)
        nodes = list(ast.walk(tree))
        native = _native_code(nodes)
        compiled = _compiles(nodes)
        return {
            "wraps_reference": _wraps(tree, nodes, other),
            "torch_fallback": any(_falls_back(node) for node in nodes),
            "vendor_library": compiled and bool(_VENDOR.search(native)),
            "no_custom_kernel": not compiled or (bool(native) and not _OWN_WORK.search(native)),
            "reduced_precision": bool(_NARROW.search(native)) or any(_narrows(node) for node in nodes),
            "cuda_graph": bool(_GRAPH.search(native)) or any(_graphs(node) for node in nodes),
            "extra_streams": bool(_STREAMS.search(native)) or any(_name(node) == "Stream" for node in nodes),
        }
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _native_code(nodes: list[ast.AST]) -> str:
    unused = {id(text) for text in _docstrings(nodes)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in unused]
    strings = [node.value for node in constants if isinstance(node.value, str)]
    return "\n".join(_COMMENT.sub(" ", text) for text in strings if _NATIVE.search(text))


def _compiles(nodes: list[ast.AST]) -> bool:
    """Something hands code to a compiler, or is compiled by a decorator."""
    for node in nodes:
        if isinstance(node, ast.Call) and _name(node.func) in _COMPILERS:
            return True
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_is_jit, node.decorator_list)):
            return True
    return False


def _is_jit(decorator: ast.expr) -> bool:
    names = {node.id for node in ast.walk(decorator) if isinstance(node, ast.Name)}
    return bool(names & _JITS) or _name(decorator.func if isinstance(decorator, ast.Call) else decorator) == "njit"


def _wraps(tree: ast.Module, nodes: list[ast.AST], reference: ast.Module) -> bool:
    model = _class(tree, "ModelNew")
    if model is None:
        return False
    if any(_name(base) == "Model" for base in model.bases):
        return True
    if any(isinstance(node, ast.Call) and _name(node.func) == "Model" for node in nodes):
        return True
    original = _class(reference, "Model")
    same = original is not None and _forward(original) == _forward(model)
    return same and _forward(model) is not None


def _class(tree: ast.Module, name: str) -> ast.ClassDef | None:
    return next((node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name), None)


def _forward(model: ast.ClassDef) -> str | None:
    """Its statements without docstring, names of arguments included."""
    for node in model.body:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            body = [
                part for part in node.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
            names = [argument.arg for argument in node.args.args]
            return f"{names}" + "".join(ast.dump(part) for part in body)
    return None


def _falls_back(node: ast.AST) -> bool:
    """An except branch that computes, or a branch for tensors that are on no GPU."""
    if isinstance(node, ast.ExceptHandler):
        return any(_computes(statement) for statement in node.body)
    if isinstance(node, ast.If) and any(_name(part) in ("is_cuda", "is_available") for part in ast.walk(node.test)):
        negated = isinstance(node.test, ast.UnaryOp) and isinstance(node.test.op, ast.Not)
        return any(_computes(statement) for statement in (node.body if negated else node.orelse))
    return False


def _computes(statement: ast.stmt) -> bool:
    for node in ast.walk(statement):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="self"))) if isinstance(statement, ast.Return):
                return True
            case ast.Call(func=func) if _name(func) in _OPERATIONS:
                return True
    return False


def _narrows(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="float16" | "bfloat16" | "half" | "autocast"):
            return True
        case ast.Assign(targets=targets, value=ast.Constant(value=True)):
            return any(_name(target) == "allow_tf32" for target in targets)
        case ast.Call(args=[ast.Constant(value="high" | "medium"), *_]):
            return _name(node.func) == "set_float32_matmul_precision"
    return False


def _graphs(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(attr="CUDAGraph" | "make_graphed_callables"):
            return True
        case ast.keyword(arg="mode", value=ast.Constant(value="reduce-overhead")):
            return True
    return False


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value
