"""Handlers of the steps that prepare a worker: regions, imports, models and their state."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path
from time import monotonic
from typing import Any

import torch
from torch import nn

from grader import protocol as p
from grader.protocol.regions import copy_each
from grader.worker.autograd.tensors import describe, state_of
from grader.worker.compile.ahead import compilers
from grader.worker.compile.importing import import_source
from grader.worker.conditions import seed_generators
from grader.worker.float64_forward import keep_function
from grader.worker.memory import Region, give_back_memory
from grader.worker.registry import handles
from grader.worker.session import Session

COMPILERS = 16
"""Most processes in which TorchInductor compiles: a search for kernels has about twenty candidates."""


@handles(p.Attach)
def attach(session: Session, step: p.Attach) -> p.Done:
    """Map a region in place of the old one."""
    old = session.regions.pop(step.region, None)
    if old is not None:
        old.close()
    session.regions[step.region] = Region(step, session.take_descriptor())
    return p.Done()


@handles(p.Import)
def import_class(session: Session, step: p.Import) -> p.Imported:
    """Import the source, with extensions from a bundle and into a bundle as requested."""
    builder = session.builder
    started = monotonic()
    first = len(builder.events)
    if step.use_bundle:
        builder.kept.take(session.take_descriptor())
    bundle = session.take_descriptor() if step.give_bundle else None
    session.dtype, session.tf32 = None if step.dtype is None else getattr(torch, step.dtype), step.tf32
    with compilers(session) if step.no_gpu else contextlib.nullcontext():
        session.submitted = import_source(step.source, step.file_name, step.class_name)
    return p.Imported(
        seconds=monotonic() - started,
        builds=tuple(builder.events[first:]),
        bundle_bytes=0 if bundle is None else builder.kept.give(bundle),
    )


@handles(p.Keep)
def keep(session: Session, step: p.Keep) -> p.Kept:
    """Pack what was compiled, if there is something new."""
    if step.end_compilers:
        _end_compilers()
    kept, descriptor = session.builder.kept, session.take_descriptor()
    added = kept.added()
    return p.Kept(added=added, bundle_bytes=kept.give(descriptor) if added else 0)


def _end_compilers() -> None:
    """End TorchInductor's processes: a pool, whose children compile.

    If they were only asked to, those of an ended search would finish their work first.
    """
    inductor: Any = sys.modules.get("torch._inductor.async_compile")
    if inductor is None:
        return
    for pool in inductor._pool_set:
        if (process := getattr(pool, "process", None)) is not None:
            children = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/children")]
            for pid in (process.pid, *map(int, " ".join(children).split())):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    inductor.shutdown_compile_workers()


@handles(p.Construct)
def construct(session: Session, step: p.Construct) -> p.Constructed:
    """Create a model on its device.

    Raises TypeError if the class is not a torch.nn.Module, and ValueError if its state has too many tensors.
    """
    session.device = torch.device(step.device)
    seed_generators(session.device, step.seed)
    model = _new_model(session, step)
    if not isinstance(model, nn.Module):
        raise TypeError(f"{type(model).__name__} is not a torch.nn.Module")
    lazy = next((name for name, value in state_of(model).items() if nn.parameter.is_lazy(value)), None)
    if lazy is not None:
        raise TypeError(
            f"`{lazy}` has no shape before the first forward, as of a lazy module; create it with its shape"
        )
    for what, count in ("parameters", len(list(model.parameters()))), ("buffers", len(list(model.buffers()))):
        if count > p.MOST_ENTRIES:
            raise ValueError(f"the model has {count} {what}; at most {p.MOST_ENTRIES} can be graded")
    model = _converted(model.to(session.device), session.dtype)
    if step.float64:
        model = _to_float64(model)
        keep_function(model, session.dtype or torch.float32, creates=step.float64_factories)
    session.add_model(step.model, model)
    session.detaches_kept = step.detach_kept
    if step.compile_mode != "none":
        _compile(model, step.compile_mode, session.device)
    return p.Constructed(
        parameters=tuple(describe(name, value) for name, value in model.named_parameters()),
        buffers=tuple(describe(name, value) for name, value in model.named_buffers()),
    )


@handles(p.Use)
def use(session: Session, step: p.Use) -> p.Done:
    """Bind a key to a model that exists."""
    session.models[step.model] = session.models[step.constructed]
    session.parameters[step.model] = session.parameters[step.constructed]
    return p.Done()


@handles(p.SetState)
def set_state(session: Session, step: p.SetState) -> p.Done:
    """Copy values from the inbox into parameters and buffers in place."""
    state, inbox = state_of(session.models[step.model]), session.regions["inbox"]
    # A detached tensor shares the version counter, by which an honest cache notices an optimizer's step.
    targets = [state[name].detach() for name in step.values]
    values = [inbox.slot(slot) for slot in step.values.values()]
    pairs = zip(values, targets, strict=True)
    copy_each(targets, [value if value.shape == target.shape else value.view(target.shape) for value, target in pairs])
    return p.Done()


@handles(p.LoadState)
def load_state(session: Session, step: p.LoadState) -> p.Done:
    """Load copies of the inbox values; names that the model does not know are left to its hooks."""
    inbox = session.regions["inbox"]
    values = {name: inbox.slot(slot).to(session.device, copy=True) for name, slot in step.values.items()}
    model = session.models[step.model]
    model.load_state_dict(values, strict=False)
    session.parameters[step.model].update(model.named_parameters())
    return p.Done()


@handles(p.Drop)
def drop(session: Session, step: p.Drop) -> p.Done:
    """Forget inputs, tapes and gradients, and return memory as requested."""
    session.thaw()
    session.inputs.clear()
    session.grad_outputs.clear()
    if step.keep_results:
        for tape in session.tapes.values():
            # Detached: a graph holds the leaves and more.
            tape.outputs = {
                name: value.detach() if isinstance(value, torch.Tensor) else value
                for name, value in tape.outputs.items()
            }
            tape.leaves = {}
    else:
        session.tapes.clear()
        session.grads.clear()
    if step.models:
        session.models.clear()
        session.parameters.clear()
    if step.keep_bytes is not None:
        session.spacers.clear()
        session.synchronize()
        give_back_memory(session.device, step.keep_bytes, host=step.models)
    return p.Done()


def _new_model(session: Session, step: p.Construct) -> object:
    """Call the constructor, on the device if possible: a CPU draws gigabytes of parameters in a minute."""
    assert session.submitted is not None
    if step.on_device and session.device.type != "cpu":
        with contextlib.suppress(Exception), session.device:
            return session.submitted(*p.decode_value(step.init_inputs))
        seed_generators(session.device, step.seed)
    with torch.device("cpu"):
        return session.submitted(*p.decode_value(step.init_inputs))


def _converted(model: nn.Module, dtype: torch.dtype | None) -> nn.Module:
    """Convert floating parameters and buffers, but those of one byte, which come with scales of their own."""

    def convert(value: torch.Tensor) -> torch.Tensor:
        return value.to(dtype) if value.is_floating_point() and value.itemsize > 1 else value

    return model if dtype is None else model._apply(convert)  # type: ignore[no-untyped-call]


def _to_float64(model: nn.Module) -> nn.Module:
    """Convert the model to float64 and its complex values, which `double` skips, to complex128."""
    model.double()
    for value in (*model.parameters(), *model.buffers()):
        if value.is_complex():
            value.data = value.data.to(torch.complex128)
    return model


def _compile(model: nn.Module, mode: str, device: torch.device) -> None:
    """Compile in place, to keep parameter names. For a GPU, kernels are compiled in parallel, by other processes."""
    from torch._inductor import config

    config.compile_threads = min(COMPILERS, len(os.sched_getaffinity(0))) if device.type == "cuda" else 1
    model.compile(mode=mode, dynamic=False)
