"""Handlers of a forward and a backward pass, and the conditions that every call runs under."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from grader import protocol as p
from grader.protocol.regions import copy_each, memory_order
from grader.worker.autograd import engine, graph
from grader.worker.autograd.changes import changed_backward, changed_forward
from grader.worker.autograd.substitutes import substituted
from grader.worker.autograd.tensors import describe, flatten, plain
from grader.worker.conditions import late_stream, no_collection, seed_generators, set_precision
from grader.worker.registry import handles
from grader.worker.session import Inputs, Session, Tape

RECOMPILE_LIMIT = 256
"""Compilations of one function by Dynamo: one for each mode, shape and set of operands that require a gradient. Past
its own limit of 8 it raises, or runs the rest uncompiled, where a dropout draws other numbers under the same seed."""


@handles(p.PutInputs)
def put_inputs(session: Session, step: p.PutInputs) -> p.Done:
    """Copy arguments from the inbox into private tensors."""
    session.clear_grads()
    old = session.inputs.get(step.inputs)  # stays alive until the new tensors exist
    arguments: list[object] = []
    leaves: dict[str, torch.Tensor] = {}
    for index, argument in enumerate(step.arguments):
        if argument.slot is None:
            arguments.append(p.decode_value(argument.value))
            continue
        value = session.regions["inbox"].slot(argument.slot)
        widens = step.float64 and value.itemsize > 1 and (value.is_floating_point() or value.is_complex())
        dtype = torch.promote_types(value.dtype, torch.float64) if widens else value.dtype
        target = old.arguments[index] if old is not None and step.reuse_addresses else None
        if not isinstance(target, torch.Tensor):
            target = _empty(value.shape, dtype, session.device, argument.layout)
        with torch.no_grad():
            target.data.copy_(value)
        target.grad = None
        arguments.append(target.requires_grad_(argument.requires_grad))
        leaves[f"input[{index}]"] = target
    session.inputs[step.inputs] = Inputs(arguments, leaves)
    return p.Done()


@handles(p.Forward)
def forward(session: Session, step: p.Forward) -> p.Outputs:
    """Call the model and describe what it returned."""
    outputs = call_forward(session, step)
    tensors = tuple(describe(name, value) for name, value in outputs.items())
    tape = session.tapes[step.tape]
    return p.Outputs(
        tensors=tensors,
        changed=tape.changed,
        numbers=tape.numbers,
        slips=tape.slips,
        recording_off=step.grad and not torch.is_grad_enabled(),
    )


def computed(value: object) -> object:
    """The output with ordinary values, where it is lazily negated, conjugated or zero.

    Its first reader would do that work, after a timed call.
    """
    if not isinstance(value, torch.Tensor):
        return value
    if value._is_zerotensor():
        return torch.zeros_like(value)
    return value.resolve_conj().resolve_neg() if value.is_conj() or value.is_neg() else value


def call_forward(session: Session, step: p.Forward) -> dict[str, object]:
    """Call the model under the step's conditions, keep the tape, and return the outputs by name."""
    model, inputs = session.models[step.model], session.inputs[step.inputs]
    leaves = {**session.parameters[step.model], **inputs.leaves}
    arguments = list(inputs.arguments)
    if session.detaches_kept:
        _detach_kept(model)
    model.train(step.training)
    _raise_recompile_limit()
    if step.seed is not None:
        seed_generators(session.device, step.seed)
    set_precision(session.device, tf32=step.tf32, always=session.tf32)
    session.thaw()
    for name in step.frozen:
        if leaves[name].requires_grad:
            session.frozen.append(leaves[name].requires_grad_(False))
    late = late_stream(session.device, inputs.leaves.values(), active=step.side_stream)
    with late, substituted(step.substitute), changed_forward(step.change, leaves) as change, no_collection():
        if step.clone_inputs:
            arguments = [item.clone() if isinstance(item, torch.Tensor) else item for item in arguments]
        try:
            with contextlib.nullcontext() if step.grad else torch.no_grad():
                outputs = {name: computed(value) for name, value in flatten(model(*arguments))}
        finally:
            if step.substitute == "no_no_grad":  # else the next backward would follow what buffers come from
                for buffer in model.buffers():
                    buffer.detach_()
    found = {"changed": "name", "numbers": "numbers", "slips": "slips", "sources": "sources"}
    of_change = {name: getattr(change, source) for name, source in found.items() if hasattr(change, source)}
    session.tapes[step.tape] = Tape(outputs, leaves, **of_change)
    return outputs


def _detach_kept(model: nn.Module) -> None:
    """Detach the tensors that an earlier forward left in attributes."""
    for module in model.modules():
        kept = {name: value for name, value in vars(module).items() if isinstance(value, torch.Tensor)}
        vars(module).update({name: value.detach() for name, value in kept.items() if value.grad_fn is not None})


@handles(p.Backward)
def backward(session: Session, step: p.Backward) -> p.Gradients:
    """Compute a vector-Jacobian product of a tape, keep the gradients, and describe them."""
    tape = session.tapes[step.tape]
    grad_outputs = take_grad_outputs(session, step)
    if step.double != "no":  # a linear backward has a graph only if its grad_output has one
        for g in grad_outputs.values():
            g.requires_grad_()
    pairs = [(tape.outputs[name], g) for name, g in grad_outputs.items()]
    pairs = [(used(y), g.to(y.dtype) if isinstance(y, torch.Tensor) else g) for y, g in pairs]
    set_precision(session.device, tf32=step.tf32, always=session.tf32)
    dense = graph.contiguous_grads(pairs) if step.contiguous_grads else contextlib.nullcontext()
    late = late_stream(session.device, (g for _, g in pairs), active=step.side_stream)
    change = changed_backward(step.change, tape.sources)
    with late, dense, substituted(step.substitute), change as changing, no_collection():
        if step.into != "result":
            session.accumulated = True
            grads = engine.accumulated(pairs, tape.leaves, step)
        else:
            grads = engine.vector_jacobian_product(pairs, tape.leaves, step.wrt, step.retain_graph, step.double != "no")
    session.grads[step.grads] = grads
    again = None
    if step.double != "no":
        trusts = step.double == "own"
        again = graph.differentiable_again(grads, tape.leaves, list(grad_outputs.values()), trusts_pytorch=trusts)
    return p.Gradients(
        tensors=tuple(describe(name, value) for name, value in grads.items()),
        double_backward=again,
        changed=getattr(changing, "name", ""),
        numbers=getattr(changing, "numbers", 0),
        slips=getattr(changing, "slips", ()),
    )


def used(output: object) -> object:
    """Return what an operation makes of an output that carries a graph, as a loss has it.

    Whatever replaces autograd for the output alone does not do so for this, and a grad_output passes it unchanged.
    """
    carries = isinstance(output, torch.Tensor) and output.requires_grad
    return torch.ops.aten.alias.default(output) if carries else output


@handles(p.Overwrite)
def overwrite(session: Session, step: p.Overwrite) -> p.Done:
    """Fill the outputs that carry a graph with NaN, which marks whatever is computed from them."""
    for value in session.tapes[step.tape].outputs.values():
        if isinstance(value, torch.Tensor) and value.grad_fn is not None:
            value.detach().fill_(torch.nan)  # detached, a tensor still counts its versions with this one
    return p.Done()


@handles(p.Trace)
def trace(session: Session, step: p.Trace) -> p.Traced:
    """Follow a tape's graph back from its outputs."""
    tape = session.tapes[step.tape]
    pairs = [(tape.outputs[name], cotangent(session, given)) for name, given in step.cotangents.items()]
    return graph.trace(pairs, tape.leaves, step.wrt)


@handles(p.Export)
def export(session: Session, step: p.Export) -> p.Exported:
    """Copy tensors into the outbox.

    Refuses those without the slot's shape and dtype, and those without elements to copy (sparse, meta). A sparse
    gradient is dense already (`Session.found`).
    """
    refused, targets, values = list[p.TensorInfo](), list[torch.Tensor](), list[torch.Tensor]()
    orders: dict[str, tuple[int, ...]] = {}
    outbox = session.regions["outbox"]
    for source, value in session.found(step.items):
        slot = step.items[source]
        dtype = getattr(torch, slot.dtype)
        if isinstance(value, torch.Tensor) and _converts(step, source, value, dtype):
            value = value.to(dtype)
        if isinstance(value, torch.Tensor) and _fits(value, slot):
            target, value = outbox.slot(slot), plain(value)
            order = memory_order(value) if step.keeps_order else None
            if order is not None and p.is_name(source):
                orders[source] = order
                value = value.permute(order)
                target = target.view(value.shape)
            targets.append(target)
            values.append(value)
        else:
            refused.append(describe(source, value))
    copy_each(targets, values)
    if not step.queued:
        session.synchronize()
    return p.Exported(refused=tuple(refused), orders=orders)


def _converts(step: p.Export, source: str, value: torch.Tensor, dtype: torch.dtype) -> bool:
    """Floats as asked; state always, as `SetState` does: a mask may be of floats where the reference's is boolean."""
    if source.startswith("state:") and value.layout == torch.strided and not value.is_nested:
        return value.dtype != dtype and value.is_complex() <= dtype.is_complex
    return step.convert and (value.is_floating_point() or value.is_complex())


def _fits(value: torch.Tensor, slot: p.Slot) -> bool:
    if value.is_nested or value.layout != torch.strided or value.is_meta:
        return False
    return tuple(value.shape) == slot.shape and value.dtype == getattr(torch, slot.dtype)


def take_grad_outputs(session: Session, step: p.Backward | p.TimedPart) -> dict[str, torch.Tensor]:
    """Keep private copies of the step's grad_outputs with its gradients, and return them by output name."""
    taken = {name: cotangent(session, given) for name, given in step.cotangents.items()}
    session.grad_outputs[step.grads] = taken
    return taken


def cotangent(session: Session, given: p.Cotangent) -> torch.Tensor:
    """Return a private copy of a grad_output in its layout."""
    value = session.regions["inbox"].slot(given.slot).to(session.device, copy=True)
    if given.layout == "expanded":
        return value.expand(given.expand_to or value.shape)
    if given.layout == "transposed":
        return value.transpose(0, -1).contiguous().transpose(0, -1)
    if given.layout == "sliced":
        return _empty(value.shape, value.dtype, session.device, "strided").copy_(value)
    return value


def _raise_recompile_limit() -> None:
    """Let Dynamo compile more often, if it has been imported; importing it takes seconds."""
    config: Any = sys.modules.get("torch._dynamo.config")
    if config is not None and config.recompile_limit < RECOMPILE_LIMIT:
        config.recompile_limit = config.accumulated_recompile_limit = RECOMPILE_LIMIT


def _empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device, layout: str) -> torch.Tensor:
    if layout == "contiguous" or not shape:
        return torch.empty(shape, dtype=dtype, device=device)
    # NaN in the gaps: a kernel that takes the memory for contiguous reads it.
    wide = torch.empty((*shape[:-1], 2 * shape[-1]), dtype=dtype, device=device)
    if dtype.is_floating_point:
        wide.fill_(float("nan"))
    else:
        wide.zero_()
    return wide[..., ::2]
