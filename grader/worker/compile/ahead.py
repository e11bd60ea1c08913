"""Compiles just-in-time kernels where there is no GPU: Triton's and NVRTC's.

Triton knows a kernel's argument types at its launch. So the model runs on fake tensors, which have a shape, a dtype and
the device `cuda` but no values; a launch compiles its kernel for the GPU's architecture and runs nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from time import monotonic
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from grader import protocol as p
from grader.worker.registry import handles
from grader.worker.session import Session

HOPPER = {"multiprocessor_count": 132, "max_shared_mem": 232448, "max_num_regs": 65536, "warpSize": 32}
"""What kernels ask about the GPU: an H100's figures."""
_COMPILERS_SAY_SO = {"CompilationError", "KernelRejected"}
"""Triton's exception for a kernel that it cannot compile, and the one below. Others may be the fake tensors' fault."""
Compile = Callable[[str, Callable[[], Any]], Any]
"""Runs a compiler for a kernel of that name, and records it."""


class KernelRejected(RuntimeError):
    """NVRTC does not compile a kernel."""


@handles(p.CompileAhead)
def compile_ahead(session: Session, step: p.CompileAhead) -> p.CompiledAhead:
    """Run forward and backward on fake tensors, as far as possible. Raises what a compiler raises."""
    first = len(session.builder.events)
    note = ""
    try:
        with compilers(session), fake_gpu(session.submitted):
            _run(session, step)
    except Exception as error:
        if _is_compilers(error):
            raise
        lines = str(error).strip().splitlines() or [""]
        note = f"{type(error).__name__}: {lines[0]}"
    return p.CompiledAhead(builds=tuple(session.builder.events[first:]), note=note[:512])


@contextlib.contextmanager
def compilers(session: Session) -> Iterator[None]:
    """Have just-in-time compilers compile for TORCH_CUDA_ARCH_LIST and launch nothing."""
    capability = int(os.environ["TORCH_CUDA_ARCH_LIST"].partition("+")[0].replace(".", ""))
    seen = set[tuple[str, object]]()

    def record(name: str, compiler: Callable[[], Any]) -> Any:
        started = monotonic()
        try:
            result = compiler()
        except Exception as error:
            if _is_compilers(error):
                session.builder.record(name, False, started, log=_log(error))
            raise
        key = (name, getattr(result, "hash", None))
        if key not in seen:
            seen.add(key)
            session.builder.record(name, True, started)
        return result

    with contextlib.ExitStack() as stack:
        for patch in (*_nvrtc(capability, record), *(_triton(capability, record) if "triton" in sys.modules else ())):
            stack.enter_context(patch)
        yield


def _nvrtc(capability: int, record: Compile) -> list[Any]:
    from torch.cuda import _utils

    stock = _utils._nvrtc_compile

    def compiled(source: str, name: str, compute_capability: str | None = None, *rest: Any, **options: Any) -> Any:
        def compiler() -> Any:
            try:
                return stock(source, name, compute_capability or str(capability), *rest, **options)
            except RuntimeError as error:
                raise KernelRejected(str(error)) from error

        return record(name, compiler)

    def loaded(_: object, names: list[str]) -> dict[str, Callable[..., None]]:
        return {name: lambda *_, **__: None for name in names}

    return [
        mock.patch.object(_utils, "_nvrtc_compile", compiled),
        mock.patch.object(_utils, "_cuda_load_module", loaded),
    ]


def _triton(capability: int, record: Compile) -> list[Any]:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import autotuner, driver, jit

    stock = jit.JITFunction.run
    properties = SimpleNamespace(get_device_properties=lambda _: HOPPER)
    driver.set_active(
        SimpleNamespace(
            get_current_device=lambda: 0,
            get_current_stream=lambda _=0: 0,
            set_current_device=lambda _: None,
            get_current_target=lambda: GPUTarget("cuda", capability, 32),
            get_active_torch_device=lambda: torch.device("cuda", 0),
            utils=properties,
        )
    )

    def kind(value: Any) -> Any:
        return jit.MockTensor(value.dtype) if isinstance(value, torch.Tensor) else value

    def launch(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        args, options = tuple(map(kind, args)), {name: kind(value) for name, value in options.items()}
        return record(self.__name__, lambda: stock(self, *args, grid=grid, warmup=True, **options))

    def first_config(self: Any, *args: Any, **options: Any) -> Any:
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        for config in self.prune_configs(options):
            try:
                return self.fn.run(*args, **options, **config.all_kwargs())
            except Exception as error:  # Triton skips such a configuration too
                failed = error
        raise failed

    return [
        mock.patch.object(jit.JITFunction, "run", launch),
        mock.patch.object(autotuner.Autotuner, "run", first_config),
    ]


def _is_compilers(error: Exception) -> bool:
    return any(one.__name__ in _COMPILERS_SAY_SO for one in type(error).__mro__)


def _log(error: Exception) -> str:
    """The compiler's text with a line marked as an error. Triton's is the last, below the source."""
    text = str(error).strip() or type(error).__name__
    return text if "error: " in text else f"error: {text.splitlines()[-1]}\n{text}"


@contextlib.contextmanager
def fake_gpu(submitted: type | None) -> Iterator[None]:
    """Fake tensors on a GPU that answers as one of Hopper's; a submission's operators run their code.

    `torch.cuda.is_available()` stays false: otherwise PyTorch asks the driver for a stream, which ends the process.
    """
    from torch._library import custom_ops, triton
    from torch._subclasses.fake_tensor import FakeTensorMode

    properties = SimpleNamespace(
        name="none", major=9, minor=0, multi_processor_count=132, shared_memory_per_block_optin=232448, warp_size=32
    )
    answers: dict[str, Any] = {
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "synchronize": lambda *_: None,
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": lambda *_: properties,
        "current_stream": lambda *_: SimpleNamespace(cuda_stream=0, device=torch.device("cuda", 0)),
        "device": lambda *_: contextlib.nullcontext(),
    }
    for operator in list(custom_ops.OPDEFS.values()):
        if submitted is not None and operator._init_fn.__module__ == submitted.__module__:
            operator.register_fake(operator._init_fn)
    with contextlib.ExitStack() as stack:
        for name, answer in answers.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answer))
        stack.enter_context(triton.set_wrap_triton_enabled(False))
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(_AllNonzero())  # type: ignore[no-untyped-call]
        yield


class _AllNonzero(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """`nonzero` finds every element: fake tensors have no values, and kernels behind it need a size."""

    def __torch_dispatch__(
        self, func: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.nonzero.default:
            return args[0].new_empty((args[0].numel(), args[0].dim()), dtype=torch.int64)
        return func(*args, **(kwargs or {}))


def _run(session: Session, step: p.CompileAhead) -> None:
    assert session.submitted is not None
    with torch.device("cuda"):
        model = session.submitted(*p.decode_value(step.init_inputs))
        if not isinstance(model, nn.Module):
            raise TypeError(f"{type(model).__name__} is not a torch.nn.Module")
        _move(model)
        arguments = [p.decode_value(given.value) if given.dtype is None else _tensor(given) for given in step.inputs]
    outputs = model(*arguments)
    for output in outputs if isinstance(outputs, tuple | list) else [outputs]:
        if isinstance(output, torch.Tensor) and output.grad_fn is not None:
            _differentiate(output)


def _tensor(given: p.FakeInput) -> torch.Tensor:
    dtype = getattr(torch, str(given.dtype))
    return torch.empty(given.shape, dtype=dtype, device="cuda", requires_grad=dtype.is_floating_point)


def _move(model: nn.Module) -> None:
    """Put parameters and buffers on the GPU. `Module.to` does not replace fake parameters."""
    for module in model.modules():
        for name, value in module._parameters.items():
            if value is not None and not value.is_cuda:
                module._parameters[name] = nn.Parameter(torch.empty_like(value, device="cuda"), value.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None and not buffer.is_cuda:
                module._buffers[name] = torch.empty_like(buffer, device="cuda")


def _differentiate(output: torch.Tensor) -> None:
    """Call the nodes of the graph behind an output in turn: PyTorch's engine would need the device."""
    order, pending = list[Any](), list[tuple[Any, bool]]([(output.grad_fn, False)])
    seen = set[Any]()
    while pending:
        node, done = pending.pop()
        if done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            pending += [(node, True), *((after, False) for after, _ in node.next_functions if after is not None)]
    gradients: dict[Any, dict[int, torch.Tensor]] = {output.grad_fn: {output.output_nr: torch.empty_like(output)}}
    for node in reversed(order):
        if not node.next_functions:  # a leaf
            continue
        given = gradients.get(node, {})
        wanted = enumerate(node._input_metadata)
        values = [given.get(at, torch.zeros(info.shape, dtype=info.dtype, device="cuda")) for at, info in wanted]
        results = getattr(node, "apply", node)(*values)  # a Function of Python is not callable
        results = results if isinstance(results, tuple) else (results,)
        for (after, at), result in zip(node.next_functions, results, strict=False):
            if after is not None and result is not None:
                gradients.setdefault(after, {})[at] = result
