"""Reads from a syntax tree whether NumPy or SciPy computes matrix products."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

_ARRAY_MODULES = {"numpy", "scipy"}
_ARRAY_PRODUCTS = {"dot", "matmul", "einsum", "inner", "tensordot", "vdot", "multi_dot", "convolve", "sgemm", "sgemv"}
_ARRAYS = {"numpy", "asarray", "array", "ascontiguousarray", "__array__"}
"""Functions that make a NumPy array, whose `@` and `dot` call BLAS."""


def multiplies_arrays(nodes: Sequence[ast.AST]) -> bool:
    """Whether NumPy or SciPy computes products: by a function, or by `@` in a source that makes arrays."""
    names = {name for node in nodes for name in _array_names(node)}
    if not names:
        return False
    calls = [node.func for node in nodes if isinstance(node, ast.Call)]
    products = [func for func in calls if name_of(func) in _ARRAY_PRODUCTS]
    if any(not names.isdisjoint(_roots(func)) for func in products):
        return True
    makes_arrays = any(name_of(func) in _ARRAYS for func in calls)
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


def name_of(node: ast.AST) -> str | None:
    """The last name of a dotted name; None for other expressions."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return None
