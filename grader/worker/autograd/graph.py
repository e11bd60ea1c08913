"""Walks the autograd graph: which leaves the outputs depend on, and which function returns None."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from grader.protocol import Reach, Traced
from grader.worker.autograd.engine import gradients
from grader.worker.autograd.tensors import as_dense

Node = Any
"""A `torch.autograd.graph.Node`; Python Functions and engine nodes share no useful type."""


@dataclass
class Graph:
    """All nodes behind some outputs; edges lead from the outputs towards the leaves."""

    parents: dict[Node, list[tuple[Node, int]]] = field(default_factory=dict)
    """The nodes that pass a node its gradient, with the position among their results."""
    leaves: dict[int, Node] = field(default_factory=dict)
    """The node that accumulates into a leaf, by the leaf's `id`."""
    silent: dict[Node, set[int]] = field(default_factory=dict)
    """Positions at which a node that received a gradient returned None."""


def trace(
    pairs: Sequence[tuple[object, torch.Tensor]], leaves: Mapping[str, torch.Tensor], wrt: Sequence[str]
) -> Traced:
    """Run one backward with a hook on every node, and report where gradients get lost.

    The graph stays usable.
    """
    live = [(output, g) for output, g in pairs if isinstance(output, torch.Tensor) and output.requires_grad]
    graph = _explore([output.grad_fn for output, _ in live])
    targets = [leaves[name] for name in wrt if name in leaves and leaves[name].requires_grad]
    handles = [node.register_hook(_watch(graph, node)) for node in graph.parents]
    try:
        if live and targets:
            outputs, cotangents = [output for output, _ in live], [g for _, g in live]
            gradients(outputs, targets, cotangents, retain_graph=True)
    finally:
        for handle in handles:
            handle.remove()
    known = {id(leaf) for leaf in leaves.values()}
    made_inside = [node.variable for identity, node in graph.leaves.items() if identity not in known]
    return Traced(
        operands=tuple(_reach(graph, name, leaves.get(name)) for name in wrt),
        inner_leaves=tuple(tuple(leaf.shape) for leaf in made_inside[:16]),
    )


def differentiable_again(
    grads: Mapping[str, torch.Tensor | None],
    leaves: Mapping[str, torch.Tensor],
    grad_outputs: Sequence[torch.Tensor],
    *,
    trusts_pytorch: bool,
) -> bool:
    """Return whether every gradient has a graph that leads to a grad_output, in which each is linear.

    All are differentiated once more, unless `trusts_pytorch` and the graph has nothing but PyTorch's own operators.
    Raises what that raises. The graph behind a function with `once_differentiable` ends at tensors of its own, though
    a product with a weight behind it leads to the weight.
    """
    again = [dense for grad in grads.values() if (dense := as_dense(grad)) is not None]
    sources = [leaf for leaf in (*leaves.values(), *grad_outputs) if leaf.requires_grad and leaf.is_leaf]
    known = {id(g) for g in grad_outputs}
    if not again or not all(grad.requires_grad and known & _explore([grad.grad_fn]).leaves.keys() for grad in again):
        return False
    if trusts_pytorch and all(map(_is_pytorchs_own, _explore([grad.grad_fn for grad in again]).parents)):
        return True
    gradients(again, sources, [torch.ones_like(grad) for grad in again])
    return True


def _is_pytorchs_own(node: Node) -> bool:
    """Whether a node differentiates an operator of PyTorch's or ends at a leaf; an error that was put off does not."""
    name = str(node.name())
    return type(node).__module__ == "builtins" and ("::" not in name or name == "torch::autograd::AccumulateGrad")


@contextlib.contextmanager
def contiguous_grads(pairs: Sequence[tuple[object, torch.Tensor]]) -> Iterator[None]:
    """Make every gradient contiguous before a function behind the outputs receives it."""
    roots = [output.grad_fn for output, _ in pairs if isinstance(output, torch.Tensor)]
    handles = [node.register_prehook(_contiguous) for node in _explore(roots).parents if not hasattr(node, "variable")]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _contiguous(given: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(g.contiguous() if g is not None and g.layout is torch.strided else g for g in given)


def _explore(roots: Sequence[Node]) -> Graph:
    graph = Graph()
    queue = deque(root for root in roots if root is not None)
    graph.parents.update({root: [] for root in queue})
    while queue:
        node = queue.popleft()
        if hasattr(node, "variable"):
            graph.leaves[id(node.variable)] = node
        for position, (child, _) in enumerate(node.next_functions):
            if child is None:
                continue
            if child not in graph.parents:
                graph.parents[child] = []
                queue.append(child)
            graph.parents[child].append((node, position))
    return graph


def _watch(graph: Graph, node: Node) -> Callable[[Sequence[Any], Sequence[Any]], None]:
    def hook(results: Sequence[Any], given: Sequence[Any]) -> None:
        if any(g is not None for g in given):
            graph.silent[node] = {position for position, result in enumerate(results) if result is None}

    return hook


def _reach(graph: Graph, name: str, leaf: torch.Tensor | None) -> Reach:
    node = graph.leaves.get(id(leaf))
    if node is None:
        return Reach(operand=name, reached=False)
    seen, queue = {node}, deque([node])
    while queue:
        child = queue.popleft()
        for parent, position in graph.parents[child]:
            if position in graph.silent.get(parent, ()):
                return Reach(operand=name, reached=True, function=_name(parent), position=_argument(parent, position))
            if parent not in seen:
                seen.add(parent)
                queue.append(parent)
    return Reach(operand=name, reached=True)


def _name(node: Node) -> str:
    """Return a node's name; `Scale` for the ScaleBackward of a custom Function."""
    return str(node.name()).removeprefix("torch::autograd::CppNode<").removesuffix(">").removesuffix("Backward")[:512]


def _argument(node: Node, position: int) -> int:
    """Convert a position among tensors, which a Function's edges count, to one among all of its arguments."""
    wanted = getattr(node, "needs_input_grad", None)
    if not isinstance(wanted, tuple):
        return position
    before = sum(child is not None for child, _ in node.next_functions[:position])
    tracked = [index for index, needed in enumerate(wanted) if needed]
    return tracked[before] if before < len(tracked) else position
