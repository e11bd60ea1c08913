"""Edits of a syntax tree: every place in a submission where a mutation applies, and the mutated source."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fuzz.mutants.corpus import Entry


@dataclass(frozen=True)
class Place:
    """A node of the submission with what surrounds it."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    """Position in the parent's field, if that is a list."""
    function: ast.FunctionDef
    part: str
    """`forward`, `backward` or `wrapper` (ModelNew.forward)."""

    @property
    def names(self) -> list[str]:
        """Arguments and local variables of the function, without ctx and self."""
        arguments = [one.arg for one in self.function.args.args]
        stored = [n.id for n in ast.walk(self.function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
        return [name for name in dict.fromkeys(arguments + stored) if name not in ("ctx", "self")]


@dataclass(frozen=True)
class Mutant:
    """A mutated submission."""

    problem: str
    kind: str
    """The mutation class."""
    part: str
    before: str
    after: str
    source: str

    @property
    def name(self) -> str:
        """One line that identifies it."""
        return f"{self.problem}/{self.part} {self.kind}: {self.before}  =>  {self.after}"


Edit = Callable[[Place], Iterator[ast.AST | list[ast.stmt]]]
"""Yields replacements of the place's node."""
EDITS: list[tuple[str, Edit]] = []
"""(mutation class, edit), filled by `edit`."""
HELPERS: dict[str, str] = {}
"""Functions that a replacement may call, by name, appended to the mutated source."""


def edit(kind: str) -> Callable[[Edit], Edit]:
    """Registers an edit under a mutation class."""

    def register(function: Edit) -> Edit:
        EDITS.append((kind, function))
        return function

    return register


def places(tree: ast.Module) -> Iterator[Place]:
    """Every expression and statement in Kernel's methods and in ModelNew.forward."""
    for definition in tree.body:
        if not isinstance(definition, ast.ClassDef):
            continue
        for method in definition.body:
            if isinstance(method, ast.FunctionDef) and method.name in ("forward", "backward"):
                part = method.name if definition.name == "Kernel" else "wrapper"
                yield from _inside(method, method, part)


def _inside(node: ast.AST, function: ast.FunctionDef, part: str) -> Iterator[Place]:
    for field, value in ast.iter_fields(node):
        if field in ("args", "decorator_list") and isinstance(node, ast.FunctionDef):
            continue
        children = value if isinstance(value, list) else [value]
        for index, child in enumerate(children):
            if isinstance(child, ast.expr | ast.stmt | ast.keyword):
                yield Place(child, node, field, index if isinstance(value, list) else None, function, part)
                yield from _inside(child, function, part)


def mutants(entry: Entry, only: frozenset[str] | None = None) -> list[Mutant]:
    """All single mutations of a submission, each source once."""
    tree = copy.deepcopy(entry.submission)
    found: dict[str, Mutant] = {entry.submission_source: None}  # type: ignore[dict-item]
    for place in list(places(tree)):
        before = _shown(place.node)
        for kind, function in EDITS:
            if only is not None and kind not in only:
                continue
            for replacement in function(place):
                source = _with(tree, place, replacement)
                if source not in found:
                    found[source] = Mutant(entry.name, kind, place.part, before, _shown(replacement), source)
    del found[entry.submission_source]
    return list(found.values())


def sample(available: list[Mutant], count: int, chance: random.Random) -> list[Mutant]:
    """`count` mutants, the classes as evenly as they allow."""
    by_kind: dict[str, list[Mutant]] = {}
    for mutant in chance.sample(available, len(available)):
        by_kind.setdefault(mutant.kind, []).append(mutant)
    chosen: list[Mutant] = []
    while by_kind and len(chosen) < count:
        for kind in list(by_kind):
            chosen.append(by_kind[kind].pop())
            if not by_kind[kind]:
                del by_kind[kind]
    return chosen[:count]


def _with(tree: ast.Module, place: Place, replacement: ast.AST | list[ast.stmt]) -> str:
    """The source with the place's node replaced."""
    held = getattr(place.parent, place.field)
    if place.index is None:
        changed = replacement
    else:
        new = replacement if isinstance(replacement, list) else [replacement]
        changed = [*held[: place.index], *new, *held[place.index + 1 :]]
    setattr(place.parent, place.field, changed)
    source = ast.unparse(tree) + "\n"
    setattr(place.parent, place.field, held)
    return source + "".join(f"\n\n{text}\n" for name, text in HELPERS.items() if f"{name}(" in source)


def _shown(node: ast.AST | list[ast.stmt]) -> str:
    text = "; ".join(map(ast.unparse, node)) if isinstance(node, list) else ast.unparse(node)
    return " ".join(text.split())[:160]


def call(name: str, *arguments: ast.expr) -> ast.Call:
    """`name(arguments)`, where the name may have dots."""
    function = ast.parse(name, mode="eval").body
    return ast.Call(function, list(arguments), [])


def method(node: ast.expr, name: str, *arguments: ast.expr) -> ast.Call:
    """`node.name(arguments)`."""
    return ast.Call(ast.Attribute(node, name, ast.Load()), list(arguments), [])


def expression(text: str, **parts: ast.expr) -> ast.expr:
    """The expression with the names in `parts` replaced by nodes."""
    tree = ast.parse(text, mode="eval").body

    class Fill(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            return parts.get(node.id, node)

    filled = Fill().visit(tree)
    assert isinstance(filled, ast.expr)
    return filled
