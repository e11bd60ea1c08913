"""Mutations of what is kept, written and returned: saved tensors, precision, layout, memoised values, blocks."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from fuzz.mutants.arithmetic import called, is_operand, is_returned, rounded_to
from fuzz.mutants.edits import HELPERS, Place, call, edit, expression, method

HELPERS["_tail"] = '''def _tail(x, block=4):
    """The elements behind the last whole block are not written."""
    y = x.clone(memory_format=torch.contiguous_format)
    y.view(-1)[y.numel() // block * block:] = 0
    return y'''
HELPERS["_last_row"] = '''def _last_row(x):
    """The last row is not written."""
    y = x.clone()
    y[-1:] = 0
    return y'''
HELPERS["_one"] = '''def _one(x):
    """One element is a little off."""
    y = x.clone(memory_format=torch.contiguous_format)
    y.view(-1)[y.numel() // 2] *= 1.01
    return y'''
HELPERS["_reused"] = '''def _reused(name, value, buffers={}):
    """The result in a buffer that the next call overwrites."""
    buffer = buffers.setdefault((name, value.shape, value.dtype), torch.empty_like(value))
    return buffer.copy_(value)'''
HELPERS["_added"] = '''def _added(name, value, buffers={}):
    """The result added to a buffer that is never cleared."""
    buffer = buffers.setdefault((name, value.shape, value.dtype), torch.zeros_like(value))
    buffer += value
    return buffer.clone()'''
HELPERS["_kept"] = '''def _kept(*values, buffers={}):
    """The values in a workspace that the next call overwrites."""
    kept = [buffers.setdefault((i, v.shape, v.dtype), torch.empty_like(v)) for i, v in enumerate(values)]
    for buffer, value in zip(kept, values):
        buffer.data.copy_(value)
    return kept'''
HELPERS["_memo"] = '''def _memo(key, compute, kept={}):
    """The value of the first call with this key."""
    if key not in kept:
        kept[key] = compute()
    return kept[key]'''
HELPERS["_rows"] = '''def _rows(x):
    """Reads memory as if the tensor were contiguous."""
    return x.as_strided(x.shape, torch.empty(x.shape).stride())'''

IN_PLACE = {ast.Add: "add_", ast.Sub: "sub_", ast.Mult: "mul_", ast.Div: "div_"}
IN_PLACE_METHODS = ("exp", "abs", "square", "sqrt", "log", "clamp", "sigmoid", "tanh", "pow")


@edit("wrong_operand")
def wrong_operand(place: Place) -> Iterator[ast.AST]:
    if is_operand(place) and called(place.parent) != "save_for_backward":
        for name in place.names:
            yield ast.Name(name, ast.Load())


@edit("precision")
def precision(place: Place) -> Iterator[ast.AST]:
    if isinstance(place.node, ast.expr) and (is_operand(place) or is_returned(place)) and place.part != "wrapper":
        for dtype in ("half", "bfloat16"):
            yield rounded_to(place.node, dtype)


@edit("contiguous")
def contiguous(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if called(node) == "contiguous" and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield call("_rows", node.func.value)
    if is_operand(place) and isinstance(node, ast.Name) and place.part == "backward" and node.id.startswith("grad"):
        yield call("_rows", node)


@edit("partial_write")
def partial_write(place: Place) -> Iterator[ast.AST]:
    node = place.node
    assigned = isinstance(place.parent, ast.Assign) and place.field == "value"
    if isinstance(node, ast.expr) and place.part != "wrapper" and (is_returned(place) or assigned):
        for helper in ("_tail", "_last_row", "_one"):
            yield call(helper, node)


@edit("returned_none")
def returned_none(place: Place) -> Iterator[ast.AST]:
    if is_returned(place) and place.part == "backward":
        yield ast.Constant(None)


@edit("returned_zero")
def returned_zero(place: Place) -> Iterator[ast.AST]:
    if is_returned(place) and place.part != "wrapper" and isinstance(place.node, ast.expr):
        yield call("torch.zeros_like", place.node)


@edit("saved")
def saved(place: Place) -> Iterator[ast.AST | list[ast.stmt]]:
    node = place.node
    if called(node) != "save_for_backward" or not isinstance(node, ast.Call):
        return
    for i in range(len(node.args)):
        for name in place.names:
            other = [*node.args[:i], ast.Name(name, ast.Load()), *node.args[i + 1 :]]
            yield ast.Call(node.func, other, node.keywords)
        if i:
            swapped = [*node.args[: i - 1], node.args[i], node.args[i - 1], *node.args[i + 1 :]]
            yield ast.Call(node.func, swapped, node.keywords)


@edit("stale_state")
def stale_state(place: Place) -> Iterator[ast.AST | list[ast.stmt]]:
    node = place.node
    if called(node) == "save_for_backward" and isinstance(node, ast.Call):
        yield ast.Call(node.func, [ast.Starred(call("_kept", *node.args), ast.Load())], [])
        for i, one in enumerate(node.args):
            kept = ast.Starred(call("_kept", one), ast.Load())
            yield ast.Call(node.func, [*node.args[:i], kept, *node.args[i + 1 :]], [])


@edit("memoised")
def memoised(place: Place) -> Iterator[ast.AST]:
    if not (isinstance(place.parent, ast.Assign) and place.field == "value") or place.part == "wrapper":
        return
    if isinstance(place.node, ast.Attribute) or not isinstance(place.node, ast.expr):
        return
    names = [one.id for one in ast.walk(place.node) if isinstance(one, ast.Name) and one.id in place.names]
    if names:
        compute = ast.Lambda(ast.arguments([], [], None, [], [], None, []), place.node)
        line = ast.unparse(place.parent)
        for key in (f"{names[0]}.shape", f"({names[0]}.shape, {names[0]}.dtype, {names[0]}.flatten()[0].item())"):
            yield call("_memo", expression(f"({line!r}, {key})"), compute)


@edit("reused_buffer")
def reused_buffer(place: Place) -> Iterator[ast.AST]:
    if is_returned(place) and place.part != "wrapper" and isinstance(place.node, ast.expr):
        name = ast.Constant(f"{place.part} {ast.unparse(place.node)[:30]}")
        yield call("_reused", name, place.node)
        yield call("_added", name, place.node)


@edit("in_place")
def in_place(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if place.part == "wrapper":
        return
    if isinstance(node, ast.BinOp) and isinstance(node.left, ast.Name) and type(node.op) in IN_PLACE:
        yield method(node.left, IN_PLACE[type(node.op)], node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Name) and isinstance(node.op, ast.Mult | ast.Add):
        yield method(node.right, IN_PLACE[type(node.op)], node.left)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in IN_PLACE_METHODS:
        receiver = node.func.value
        if isinstance(receiver, ast.Name) and receiver.id in place.names:
            yield ast.Call(ast.Attribute(receiver, f"{node.func.attr}_", ast.Load()), node.args, node.keywords)


@edit("uninitialised")
def uninitialised(place: Place) -> Iterator[ast.AST]:
    node = place.node
    other = {"zeros_like": "empty_like", "new_zeros": "new_empty", "ones_like": "empty_like"}.get(called(node))
    if other and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield ast.Call(ast.Attribute(node.func.value, other, ast.Load()), node.args, node.keywords)


@edit("detach")
def detach(place: Place) -> Iterator[ast.AST | list[ast.stmt]]:
    if place.part == "wrapper" and called(place.parent) == "apply" and place.field == "args":
        assert isinstance(place.node, ast.expr)
        yield method(place.node, "detach")
    if place.part == "wrapper" and called(place.node) == "apply":
        assert isinstance(place.node, ast.expr)
        yield method(place.node, "detach")
    if isinstance(place.node, ast.Expr) and called(place.node.value) == "save_for_backward":
        yield [*ast.parse("ctx.set_materialize_grads(False)").body, copy.deepcopy(place.node)]


@edit("dropped_statement")
def dropped_statement(place: Place) -> Iterator[ast.AST]:
    node = place.node
    if isinstance(node, ast.AugAssign) or (isinstance(node, ast.Expr) and called(node.value) != "save_for_backward"):
        yield ast.Pass()
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        yield ast.Pass()
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        name = node.targets[0].id
        earlier = [one.arg for one in place.function.args.args]
        for one in ast.walk(place.function):
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store) and one.lineno < node.lineno:
                earlier.append(one.id)
        if name in earlier:
            yield ast.Pass()
