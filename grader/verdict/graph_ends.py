"""Finds where a submission's Python ends the autograd graph: `.detach()`, `no_grad()` and the like.

A source can be written to mislead this reading; only the text of a remedy depends on it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from grader.verdict.python_source import parse
from grader.verdict.source_labels import read_source

_CALLS = {"detach", "detach_", "no_grad", "inference_mode", "item", "tolist", "numpy"}
_METHODS = {"detach", "detach_", "item", "tolist", "numpy"}
_ADDRESSES = {"data_ptr", "ctypes", "cffi", "from_dlpack"}
"""Ways to code that no decorator and no compiler of this source's shows."""


class GraphEnds(NamedTuple):
    """Places in a source where a graph ends."""

    own_kernel: bool = True
    """Whether it has a kernel or calls foreign code, into which autograd does not see."""
    places: tuple[str, ...] = ()
    """Expressions that end the graph, outside of autograd Functions: "`.detach()` (line 12)"."""


def graph_ends(source: str) -> GraphEnds:
    """Places in the forward and in the functions that it calls; none for a source that is not Python."""
    try:
        tree = parse(source)
    except SyntaxError:
        return GraphEnds()
    read = read_source(source, "")
    names = {_name_of(node) for node in ast.walk(tree)}
    kernel_free = read is not None and read.labels["no_custom_kernel"] and names.isdisjoint(_ADDRESSES)
    lines: dict[str, set[int]] = {}
    for function in _called(tree):
        for text, line in _ends(function):
            lines.setdefault(text, set()).add(line)
    return GraphEnds(not kernel_free, tuple(f"`{text}` ({_lines_text(lines[text])})" for text in lines))


def _called(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Each forward outside of autograd Functions, and the functions whose names those use, directly or not."""
    named: dict[str, list[ast.FunctionDef]] = {}
    for owner in ast.walk(tree):
        is_function = isinstance(owner, ast.ClassDef) and any(_name_of(base) == "Function" for base in owner.bases)
        for node in () if is_function else ast.iter_child_nodes(owner):
            if isinstance(node, ast.FunctionDef):
                named.setdefault(node.name, []).append(node)
    pending = ["forward", "__call__"]
    while pending:
        for function in named.pop(pending.pop(), ()):
            yield function
            pending += filter(None, map(_name_of, ast.walk(function)))


def _ends(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name)) if name in _CALLS:
                yield (f".{name}()" if name in _METHODS else f"{name}()"), node.lineno
            case ast.Attribute(attr="data", value=value) if _name_of(value) != "utils":
                yield ".data", node.lineno
            case ast.Call(args=[ast.Constant(value=True)]):
                pass
            case ast.Call(func=ast.Attribute(attr="set_grad_enabled")):
                yield "set_grad_enabled()", node.lineno


def _lines_text(lines: set[int]) -> str:
    shown = [str(line) for line in sorted(lines)]
    return f"line {shown[0]}" if len(shown) == 1 else f"lines {', '.join(shown[:-1])} and {shown[-1]}"


def _name_of(node: ast.AST) -> str | None:
    """The last name of a dotted name, or a module's; None for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name
        case ast.ImportFrom(module=str(name)):
            return name
    return None
