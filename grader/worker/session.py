"""Carries out the steps of a job on models, inputs, tapes and gradients that stay here between jobs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from grader import protocol as p
from grader.worker.autograd import engine
from grader.worker.autograd.graph import contiguous_grads, trace
from grader.worker.autograd.substitutes import substituted
from grader.worker.autograd.tensors import describe, flatten, plain, state_of
from grader.worker.checks import work_count
from grader.worker.checks.guarded import guard
from grader.worker.checks.late_stream import late_stream
from grader.worker.checks.profile import profile
from grader.worker.compile import dynamo
from grader.worker.compile.importing import Builder, import_source
from grader.worker.heap import Heap
from grader.worker.memory import Region, give_back_memory
from grader.worker.precision import set_precision
from grader.worker.timing import clock, peaks, queue
from grader.worker.timing.spacing import Spacers
from grader.worker.warm import warm_up

FILLER_BYTES = 64 << 20
"""What a CPU's caches are flushed with, unless more is asked for."""


@dataclass
class Inputs:
    """Private copies of one set of arguments; `held` keeps replaced tensors alive until new ones exist."""

    arguments: list[object]
    leaves: dict[str, torch.Tensor]


@dataclass
class Tape:
    """What one forward returned, and the leaves that it can be differentiated by."""

    outputs: dict[str, object]
    leaves: dict[str, torch.Tensor]


@dataclass
class Bench:
    builder: Builder
    regions: dict[str, Region] = field(default_factory=dict)
    classes: dict[str, type] = field(default_factory=dict)
    models: dict[str, nn.Module] = field(default_factory=dict)
    inputs: dict[str, Inputs] = field(default_factory=dict)
    tapes: dict[str, Tape] = field(default_factory=dict)
    grads: dict[str, dict[str, torch.Tensor | None]] = field(default_factory=dict)
    given: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """The grad_outputs behind `grads`."""
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    spacers: Spacers = field(default_factory=Spacers)
    filler: torch.Tensor | None = None
    """On the CPU: what caches are flushed with."""
    heap: Heap = field(default_factory=Heap)
    """On the CPU: all there before a sample."""
    frozen: list[torch.Tensor] = field(default_factory=list)
    """Leaves that require no gradient until the next forward."""
    timed: tuple[torch.cuda.Event, torch.cuda.Event] | None = None
    """Before and after the part that was queued last."""

    def run(self, step: p.Step, descriptors: list[int]) -> p.Result:
        """Carry out one step; `descriptors` are those that came with the job and are not yet taken."""
        match step:
            case p.Attach():
                return self.attach(step, descriptors)
            case p.Warm():
                return warm_up(step)
            case p.Import():
                return self.import_class(step, descriptors)
            case p.Construct():
                return self.construct(step)
            case p.Use():
                self.models[step.model] = self.models[step.constructed]
                return p.Done()
            case p.SetState():
                return self.set_state(step)
            case p.PutInputs():
                return self.put_inputs(step)
            case p.Forward():
                return self.forward(step)
            case p.Backward():
                return self.backward(step)
            case p.Trace():
                return self.trace(step)
            case p.Export():
                return self.export(step)
            case p.Flush():
                return clock.flush(self, step)
            case p.Time():
                return clock.measure(self, step)
            case p.Await():
                return queue.hold(self, step)
            case p.Queue():
                return queue.queue(self, step)
            case p.Answer():
                return queue.answer(self, step)
            case p.Elapsed():
                return queue.elapsed(self)
            case p.Count():
                return work_count.count(self, step)
            case p.Gauge():
                return peaks.gauge(step)
            case p.Guard():
                return guard(self, step)
            case p.Profile():
                return profile(self, step)
            case p.Drop():
                return self.drop(step)

    def have_pages(self) -> None:
        """Those that a CPU's first timed call would wait for, while nobody waits for this process."""
        self.filler = torch.ones(FILLER_BYTES, dtype=torch.uint8)
        self.heap.own()

    def attach(self, step: p.Attach, descriptors: list[int]) -> p.Result:
        old = self.regions.pop(step.region, None)
        if old is not None:
            old.close()
        self.regions[step.region] = Region(step, descriptors.pop(0))
        return p.Done()

    def import_class(self, step: p.Import, descriptors: list[int]) -> p.Result:
        started = time.monotonic()
        first = len(self.builder.events)
        if step.use_bundle:
            self.builder.take_bundle(descriptors.pop(0))
        bundle = descriptors.pop(0) if step.give_bundle else None
        _, self.classes["model"] = import_source(step.source, step.file_name, step.class_name)
        return p.Imported(
            seconds=time.monotonic() - started,
            builds=tuple(self.builder.events[first:]),
            bundle_bytes=0 if bundle is None else self.builder.give_bundle(bundle),
        )

    def construct(self, step: p.Construct) -> p.Result:
        first = len(self.builder.events)
        self.device = torch.device(step.device)
        torch.manual_seed(step.seed)
        model = self.new_model(step)
        if not isinstance(model, nn.Module):
            raise TypeError(f"{type(model).__name__} is not a torch.nn.Module")
        model = model.to(self.device)
        self.models[step.model] = _doubled(model) if step.float64 else model
        if step.compile_mode != "none":
            _compile(model, step.compile_mode)
        return p.Constructed(
            parameters=tuple(describe(name, value) for name, value in model.named_parameters()),
            buffers=tuple(describe(name, value) for name, value in model.named_buffers()),
            builds=tuple(self.builder.events[first:]),
        )

    def new_model(self, step: p.Construct) -> nn.Module:
        """On the device from the start, where its constructor can: a CPU draws gigabytes of parameters in a minute."""
        for device in (self.device, torch.device("cpu")) if step.on_device else (torch.device("cpu"),):
            try:
                torch.manual_seed(step.seed)
                with device:
                    model: nn.Module = self.classes["model"](*p.decode_value(step.init_inputs))
                return model
            except Exception:
                if device.type == "cpu":
                    raise
        raise AssertionError("unreachable")

    def set_state(self, step: p.SetState) -> p.Result:
        state = state_of(self.models[step.model])
        for name, slot in step.values.items():
            value = self.regions["inbox"].slot(slot)
            # `.data` leaves the version counter alone: a cache keyed on `_version` must not notice.
            state[name].data.copy_(value.view(state[name].shape))
        return p.Done()

    def put_inputs(self, step: p.PutInputs) -> p.Result:
        old = self.inputs.get(step.inputs)
        arguments: list[object] = []
        leaves: dict[str, torch.Tensor] = {}
        for index, argument in enumerate(step.arguments):
            if argument.slot is None:
                arguments.append(p.decode_value(argument.value))
                continue
            value = self.regions["inbox"].slot(argument.slot)
            widens = step.float64 and (value.is_floating_point() or value.is_complex())
            dtype = torch.promote_types(value.dtype, torch.float64) if widens else value.dtype
            target = old.arguments[index] if old is not None and step.reuse_addresses else None
            if not isinstance(target, torch.Tensor):
                target = _empty(value.shape, dtype, self.device, argument.layout)
            with torch.no_grad():
                target.data.copy_(value)
            target.grad = None
            arguments.append(target.requires_grad_(argument.requires_grad))
            leaves[f"input[{index}]"] = target
        self.inputs[step.inputs] = Inputs(arguments, leaves)
        return p.Done()

    def forward(self, step: p.Forward) -> p.Result:
        outputs = self.call_forward(step)
        return p.Outputs(tensors=tuple(describe(name, value) for name, value in outputs.items()))

    def call_forward(self, step: p.Forward) -> dict[str, object]:
        model, inputs = self.models[step.model], self.inputs[step.inputs]
        leaves = {**dict(model.named_parameters()), **inputs.leaves}
        arguments = list(inputs.arguments)
        model.train(step.training)
        dynamo.allow_many()
        if step.seed is not None:
            torch.manual_seed(step.seed)
        set_precision(step.tf32)
        self.thaw()
        for name in step.frozen:
            if leaves[name].requires_grad:
                self.frozen.append(leaves[name].requires_grad_(False))
        late = late_stream(self.device, inputs.leaves.values(), there=step.side_stream)
        with late, substituted(step.substitute):
            if step.clone_inputs:
                arguments = [item.clone() if isinstance(item, torch.Tensor) else item for item in arguments]
            with contextlib.nullcontext() if step.grad else torch.no_grad():
                outputs = dict(flatten(model(*arguments)))
        self.tapes[step.tape] = Tape(outputs, leaves)
        return outputs

    def thaw(self) -> None:
        """What was frozen for a forward stays so in its backward, which may run parts of that again."""
        for leaf in self.frozen:
            leaf.requires_grad_(True)
        self.frozen.clear()

    def backward(self, step: p.Backward) -> p.Result:
        tape = self.tapes[step.tape]
        self.given[step.grads] = {name: self.cotangent(given) for name, given in step.cotangents.items()}
        pairs = [(tape.outputs[name], g) for name, g in self.given[step.grads].items()]
        pairs = [(y, g.to(y.dtype) if isinstance(y, torch.Tensor) else g) for y, g in pairs]
        set_precision(step.tf32)
        dense = contiguous_grads(pairs) if step.contiguous_grads else contextlib.nullcontext()
        with late_stream(self.device, [g for _, g in pairs], there=step.side_stream), dense:
            if step.into != "result":
                found = engine.accumulated(pairs, tape.leaves, step)
            else:
                found = engine.vector_jacobian_product(pairs, tape.leaves, step.wrt, step.retain_graph, step.double)
        self.grads[step.grads] = found
        return p.Gradients(
            tensors=tuple(describe(name, value) for name, value in found.items()),
            double_backward=engine.differentiable_again(found) if step.double else None,
        )

    def trace(self, step: p.Trace) -> p.Result:
        tape = self.tapes[step.tape]
        pairs = [(tape.outputs[name], self.cotangent(given)) for name, given in step.cotangents.items()]
        return trace(pairs, tape.leaves, step.wrt)

    def export(self, step: p.Export) -> p.Result:
        refused = []
        outbox = self.regions["outbox"]
        for source, slot in step.items.items():
            value = self.find(source)
            if step.widen and isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
                value = value.to(getattr(torch, slot.dtype))
            info = describe(source, value)
            if info.kind != "tensor" or info.shape != slot.shape or info.dtype != slot.dtype:
                refused.append(info)
            elif not isinstance(value, torch.Tensor) or value.layout != torch.strided or value.is_meta:
                refused.append(info)  # no elements to copy
            else:
                outbox.slot(slot).copy_(plain(value))
        if not step.queued:
            self.synchronize()
        return p.Exported(refused=tuple(refused))

    def drop(self, step: p.Drop) -> p.Result:
        self.thaw()
        self.inputs.clear()
        self.given.clear()
        if step.keep_results:
            for tape in self.tapes.values():
                tape.outputs = {name: _alone(value) for name, value in tape.outputs.items()}
                tape.leaves = {}
        else:
            self.tapes.clear()
            self.grads.clear()
        if step.models:
            self.models.clear()
        if step.empty_cache:
            self.spacers.clear()
            self.synchronize()
            give_back_memory(self.device, host=step.models)
        return p.Done()

    def find(self, source: str) -> object:
        kind, key, name = source.split(":", 2)
        if kind == "output":
            return self.tapes[key].outputs.get(name)
        if kind == "grad":
            return self.grads[key].get(name)
        if kind == "cotangent":
            return self.given[key].get(name)
        if kind == "input":
            return self.inputs[key].arguments[int(name)]
        return state_of(self.models[key]).get(name)

    def cotangent(self, given: p.Cotangent) -> torch.Tensor:
        value = self.regions["inbox"].slot(given.slot).to(self.device, copy=True)
        if given.layout == "expanded":
            return value.expand(given.expand_to or value.shape)
        if given.layout == "transposed":
            return value.transpose(0, -1).contiguous().transpose(0, -1)
        if given.layout == "sliced":
            return _empty(value.shape, value.dtype, self.device, "strided").copy_(value)
        return value

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()


def _doubled(model: nn.Module) -> nn.Module:
    """In float64; complex parameters and buffers too, which `double` leaves alone."""
    model.double()
    for value in (*model.parameters(), *model.buffers()):
        if value.is_complex():
            value.data = value.data.to(torch.complex128)
    return model


def _compile(model: nn.Module, mode: str) -> None:
    """In place, so that parameters keep their names; in this process, so that no compiler is left running."""
    from torch._inductor import config

    config.compile_threads = 1
    model.compile(mode=mode, dynamic=False)


def _alone(value: object) -> object:
    """Without the graph, which holds the leaves and more."""
    return value.detach() if isinstance(value, torch.Tensor) else value


def _empty(shape: Sequence[int], dtype: torch.dtype, device: torch.device, layout: str) -> torch.Tensor:
    if layout == "contiguous" or not shape:
        return torch.empty(shape, dtype=dtype, device=device)
    # NaN in the gaps: a kernel that walks the memory as if it were contiguous reads it.
    wide = torch.empty((*shape[:-1], 2 * shape[-1]), dtype=dtype, device=device)
    if dtype.is_floating_point:
        wide.fill_(float("nan"))
    else:
        wide.zero_()
    return wide[..., ::2]
