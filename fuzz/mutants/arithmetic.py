"""Mutations of arithmetic: terms, factors, operands, signs, constants, comparisons, functions and axes."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from fuzz.mutants.edits import Place, edit, method

COMMUTATIVE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr)
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Eq: (ast.NotEq, ast.Gt),
    ast.NotEq: (ast.Eq,),
}
FUNCTIONS = {
    "exp": ("expm1",), "expm1": ("exp",), "sigmoid": ("tanh",), "tanh": ("sigmoid", "sin"), "erf": ("tanh",),
    "sin": ("cos",), "cos": ("sin",), "square": ("abs",), "sqrt": ("square",), "rsqrt": ("reciprocal",),
    "log": ("log1p",), "log1p": ("log",), "softplus": ("relu",), "sign": ("tanh",), "amax": ("amin", "mean"),
    "max": ("min",), "min": ("max",), "cumsum": ("cumprod",), "cumprod": ("cumsum",), "softmax": ("log_softmax",),
    "log_softmax": ("softmax",), "scatter_add": ("scatter",), "index_add": ("index_copy",),
    "zeros_like": ("ones_like",), "ones_like": ("zeros_like",), "new_zeros": ("new_ones",), "logsumexp": ("sum",),
}  # fmt: skip
"""Functions and methods with others of the same signature."""
ELEMENTWISE = ("exp", "expm1", "sigmoid", "tanh", "abs", "square", "sqrt", "log", "sign", "clamp", "clamp_min", "pow",
               "sin", "cos", "masked_fill", "clone", "flip", "cumsum", "rsqrt")  # fmt: skip
TRANSPOSES = ("t", "transpose", "flip")
AXES = ("sum", "mean", "amax", "amin", "max", "min", "var", "norm", "softmax", "log_softmax", "cumsum", "cumprod",
        "flip", "cat", "stack", "chunk", "gather", "scatter", "scatter_add", "index_add", "sort", "logsumexp",
        "transpose", "repeat_interleave", "unsqueeze", "squeeze", "var_mean", "topk")  # fmt: skip
"""Functions whose integer arguments are dimensions."""


def called(node: ast.AST) -> str:
    """The last part of the called function's name, or ''."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


@edit("dropped_term")
def dropped_term(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield node.left
        yield node.right if isinstance(node.op, ast.Add) else ast.UnaryOp(ast.USub(), node.right)


@edit("dropped_factor")
def dropped_factor(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div | ast.MatMult):
        yield node.left
        if not isinstance(node.op, ast.Div):
            yield node.right


@edit("swapped_operands")
def swapped_operands(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.BinOp) and not isinstance(node.op, COMMUTATIVE):
        yield ast.BinOp(node.right, node.op, node.left)
    if isinstance(node, ast.Call) and called(node) != "save_for_backward":
        for i in range(len(node.args) - 1):
            if not any(isinstance(one, ast.Constant | ast.Starred) for one in node.args[i : i + 2]):
                swapped = [*node.args[:i], node.args[i + 1], node.args[i], *node.args[i + 2 :]]
                yield ast.Call(node.func, swapped, node.keywords)
    if isinstance(node, ast.Return) and isinstance(node.value, ast.Tuple):
        parts = node.value.elts
        for i in range(len(parts) - 1):
            yield ast.Return(ast.Tuple([*parts[:i], parts[i + 1], parts[i], *parts[i + 2 :]], ast.Load()))


@edit("sign")
def sign(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        yield ast.BinOp(node.left, ast.Sub() if isinstance(node.op, ast.Add) else ast.Add(), node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        yield ast.AugAssign(node.target, ast.Sub(), node.value)
    if is_returned(place) and isinstance(node, ast.expr):
        yield ast.UnaryOp(ast.USub(), node)


@edit("operator")
def operator(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Mult):
            yield ast.BinOp(node.left, ast.Div(), node.right)
            yield ast.BinOp(node.left, ast.Add(), node.right)
        if isinstance(node.op, ast.Div):
            yield ast.BinOp(node.left, ast.Mult(), node.right)


@edit("comparison")
def comparison(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.Compare):
        for other in COMPARISONS[type(node.ops[0])]:
            yield ast.Compare(node.left, [other()], node.comparators)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        yield ast.BinOp(node.left, ast.BitOr(), node.right)
        yield node.left
        yield node.right
    if called(node) == "where" and isinstance(node, ast.Call):
        yield node.args[1]
        yield node.args[2]


@edit("condition")
def condition(place: Place) -> Iterator[ast.AST]:
    if isinstance(place.parent, ast.If) and place.field == "test":
        yield ast.Constant(True)
        yield ast.Constant(False)
    if isinstance(place.node, ast.Attribute) and place.node.attr == "training" and place.part == "wrapper":
        yield ast.Constant(True)
        yield ast.Constant(False)


@edit("boundary")
def boundary(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.Slice):
        lower, upper = node.lower, node.upper
        for change in (1, -1):
            if lower is not None:
                yield ast.Slice(shifted(lower, change), upper, node.step)
            if upper is not None:
                yield ast.Slice(lower, shifted(upper, change), node.step)
        if node.step is None and (lower is None) != (upper is None):
            yield ast.Slice(None, None, None)
    in_range = isinstance(place.parent, ast.Call) and called(place.parent) in ("range", "arange", "unfold", "fold")
    in_subscript = isinstance(place.parent, ast.Subscript) and place.field == "slice"
    in_subscript |= isinstance(place.parent, ast.Tuple) and isinstance(whole_number(node), int)
    if isinstance(node, ast.expr) and (in_range or in_subscript) and (in_range or whole_number(node) is not None):
        yield shifted(node, 1)
        yield shifted(node, -1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
        yield shifted(node, 1)
        yield shifted(node, -1)


@edit("constant")
def constant(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if not isinstance(node, ast.Constant) or isinstance(node.value, bool | str) or node.value is None:
        return
    value = node.value
    if isinstance(value, float):
        factors = (10.0, 0.1, 0.0) if 0 < abs(value) < 1e-1 else (1.1, 0.5, 1.001, 0.0)
        for factor in factors:
            yield ast.Constant(value * factor)
    elif isinstance(place.parent, ast.BinOp | ast.Compare) and isinstance(value, int):
        yield ast.Constant(value + 1)
        yield ast.Constant(value - 1)


@edit("function")
def function(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        for other in FUNCTIONS.get(node.func.attr, ()):
            yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords)


@edit("dropped_function")
def dropped_function(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ELEMENTWISE:
        receiver = node.func.value
        if isinstance(receiver, ast.Name) and receiver.id in ("torch", "F", "math"):
            if node.args:
                yield node.args[0]
        else:
            yield receiver


@edit("reduction")
def reduction(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("sum", "mean"):
        other = "mean" if node.func.attr == "sum" else "sum"
        yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords)
        yield node.func.value
    if isinstance(node, ast.keyword) and node.arg == "unbiased":
        yield ast.keyword("unbiased", ast.Constant(True))


@edit("transpose")
def transpose(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if called(node) in TRANSPOSES and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield node.func.value
    if isinstance(place.parent, ast.BinOp) and isinstance(place.parent.op, ast.MatMult) and isinstance(node, ast.expr):
        yield ast.Attribute(node, "mT", ast.Load())
    in_product = isinstance(place.parent, ast.Call) and called(place.parent) in ("bmm", "matmul", "addmm")
    if in_product and place.field == "args" and isinstance(node, ast.expr):
        yield ast.Attribute(node, "mT", ast.Load())


@edit("axis")
def axis(place: Place) -> Iterator[ast.AST]:
    node = place.node
    call = place.parent if isinstance(place.parent, ast.Call) else None
    named = isinstance(place.parent, ast.keyword) and place.parent.arg == "dim"
    if named or (call is not None and place.field == "args" and called(call) in AXES):
        yield from other_axes(node)
    elif isinstance(place.parent, ast.Subscript) and isinstance(node, ast.Tuple):
        for i in range(len(node.elts) - 1):
            first, second = node.elts[i : i + 2]
            if ast.dump(first) != ast.dump(second):
                yield ast.Tuple([*node.elts[:i], second, first, *node.elts[i + 2 :]], ast.Load())


def other_axes(node: ast.AST) -> Iterator[ast.expr]:
    """Other dimensions than those of an argument."""
    if isinstance(node, ast.Tuple):
        for i in range(len(node.elts)):
            yield ast.Tuple([*node.elts[:i], *node.elts[i + 1 :]], ast.Load())
        for i, one in enumerate(node.elts):
            for other in other_axes(one):
                yield ast.Tuple([*node.elts[:i], other, *node.elts[i + 1 :]], ast.Load())
    else:
        number = whole_number(node)
        if number is not None:
            for other_number in (0, 1, 2, -1, -2):
                if other_number != number:
                    yield ast.Constant(other_number)


def is_returned(place: Place) -> bool:
    """Whether the node is a returned tensor."""
    if isinstance(place.node, ast.Constant):
        return False
    if isinstance(place.parent, ast.Return):
        return not isinstance(place.node, ast.Tuple)
    return isinstance(place.parent, ast.Tuple) and any(
        isinstance(one, ast.Return) and one.value is place.parent for one in ast.walk(place.function)
    )


def whole_number(node: ast.AST) -> int | None:
    """The value of an integer literal, also of a negative one."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = whole_number(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and not isinstance(node.value, bool):
        return node.value
    return None


def shifted(node: ast.expr, change: int) -> ast.expr:
    """The node plus or minus one."""
    number = whole_number(node)
    if number is not None:
        return ast.Constant(number + change)
    return ast.BinOp(node, ast.Add() if change > 0 else ast.Sub(), ast.Constant(abs(change)))


def is_operand(place: Place) -> bool:
    """Whether the node is a variable that an operation reads, so that it may be a tensor."""
    node, parent = place.node, place.parent
    if not (isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)) or node.id in ("ctx", "self", "torch"):
        return False
    if node.id in ("F", "math", "Kernel") or node.id not in place.names:
        return False
    if isinstance(parent, ast.Attribute):
        return parent.attr not in ("shape", "dtype", "copy_", "new_zeros", "new_empty", "numel")
    return isinstance(parent, ast.BinOp | ast.Call | ast.Return | ast.Tuple | ast.Subscript | ast.Compare)


def rounded_to(node: ast.expr, dtype: str) -> ast.expr:
    """The tensor rounded to a narrower type."""
    return method(method(node, dtype), "to", ast.Attribute(node, "dtype", ast.Load()))
