"""Runs in front of and behind the source of a GPU MODE problem or submission; embedded there as text.

It offers the modules `task` and `utils` that such sources import, makes models of `ref_kernel` and `custom_kernel`, and
turns what `generate_input` returns into a flat list of arguments and back. It needs nothing of the grader.

Devices: the grader chooses one. While `generate_input` runs, and a reference that names CUDA, every mention of CUDA
(`device="cuda"`, `.cuda()`, `torch.Generator(device="cuda")`) means the chosen device. Submissions are left alone.
Precision: a float64 output for data of less precision counts in the dtype of the data's first float tensor.
Output buffers: a tensor that `generate_input` makes with torch.empty and never writes holds no data. It is no argument:
each call gets a new one, so that a kernel may write into it and return it without modifying an input.
"""

import contextlib
import re
import sys
import types
import typing

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

MAX_SEED = 1 << 17
"""Upper limit of drawn seeds, as in GPU MODE: some generators use the seed as a value of the data."""

_CUDA = re.compile(r"cuda(:\d+)?")
_EMPTY = (torch.empty, torch.empty_like, torch.empty_strided, torch.Tensor.new_empty)
_MISSING = object()


# ------------------------------------------------------------------------------------------------- helper modules


class _Neutral(contextlib.ContextDecorator):
    """Does nothing: the grader sets precision and determinism, equally for both sides."""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def _not_used(*_args, **_kwargs):
    """Replaces a comparison, which the grader makes itself."""
    raise NotImplementedError("the grader compares outputs itself")


def _set_seed(seed=42):
    torch.manual_seed(seed)


def _get_device(use_cuda=True):
    return torch.device("cuda" if use_cuda and torch.cuda.is_available() else "cpu")


UTILS: dict[str, typing.Any] = {
    "make_match_reference": lambda *_args, **_kwargs: _not_used,
    "match_reference": _not_used,
    "verbose_allclose": _not_used,
    "verbose_allequal": _not_used,
    "DeterministicContext": _Neutral,
    "DisableCuDNNTF32": _Neutral,
    "set_seed": _set_seed,
    "get_device": _get_device,
    "clear_l2_cache": lambda: None,
}


def _helpers():
    task, utils = types.ModuleType("task"), types.ModuleType("utils")
    task.__dict__["__getattr__"] = _annotation
    utils.__dict__.update(UTILS)
    return {"task": task, "utils": utils}


def _annotation(name):
    """`task` declares types for annotations only: input_t, output_t, TestSpec."""
    if name.startswith("__"):
        raise AttributeError(name)
    return typing.Any


HELPERS = _helpers()


def enter():
    """Install the helper modules; returns the modules they replace."""
    before = {name: sys.modules.get(name, _MISSING) for name in HELPERS}
    sys.modules.update(HELPERS)
    return before


def leave(before):
    """Restore the modules that `enter` returned."""
    for name, module in before.items():
        if module is _MISSING:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = module


@contextlib.contextmanager
def helpers_installed():
    """Context in which helper modules are importable."""
    before = enter()
    try:
        yield
    finally:
        leave(before)


# -------------------------------------------------------------------------------------------------------- devices


class _Chosen(TorchFunctionMode):
    """A function mode that replaces CUDA by the chosen device. `empty` lists tensors made by torch.empty."""

    def __init__(self, device):
        super().__init__()
        self.device, self.empty = device, []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.cuda:
            return args[0].to(self.device)
        if func is torch.Tensor.to:
            args = tuple(self.moved(value) for value in args)
        else:
            args = tuple(self.moved(value) if isinstance(value, torch.device) else value for value in args)
        if "device" in kwargs:
            kwargs["device"] = self.moved(kwargs["device"])
        result = func(*args, **kwargs)
        if func in _EMPTY:
            self.empty.append(result)
        return result

    def moved(self, value):
        """The chosen device for one that names CUDA; any other value as it is."""
        named = isinstance(value, str) and _CUDA.fullmatch(value)
        return self.device if named or (isinstance(value, torch.device) and value.type == "cuda") else value


def _generator_on(mode):
    """Replaces torch.Generator, a type that no function mode sees."""
    stock = torch.Generator

    class Meta(type):
        def __instancecheck__(cls, value):
            return isinstance(value, stock)

    class Generator(metaclass=Meta):
        def __new__(cls, device="cpu"):
            return stock(mode.moved(device))

    return Generator


@contextlib.contextmanager
def chosen(device):
    """Context in which helper modules are importable and CUDA means `device`.

    Tensors created without a device stay on the CPU.
    """
    stock, before, mode = torch.Generator, enter(), _Chosen(device)
    torch.Generator = _generator_on(mode)  # type: ignore[misc]
    try:
        with torch.device("cpu"), mode:
            yield mode
    finally:
        torch.Generator = stock  # type: ignore[misc]
        leave(before)


# ------------------------------------------------------------------------------------------------------ arguments


def flatten(data, empty=()):
    """[tensors..., nesting]: the tensors in `data`, each once, and the structure that contains them."""
    tensors: list[torch.Tensor] = []
    made = {id(tensor) for tensor in empty}

    def visit(value):
        if isinstance(value, torch.Tensor):
            base = value if value._base is None else value._base
            if id(base) in made and base._version == 0:
                return {"buffer": list(value.shape), "dtype": str(value.dtype).removeprefix("torch.")}
            for index, known in enumerate(tensors):
                if known is value:
                    return {"tensor": index}
            tensors.append(value)
            return {"tensor": len(tensors) - 1}
        if isinstance(value, tuple):
            return {"tuple": [visit(item) for item in value]}
        if isinstance(value, list):
            return [visit(item) for item in value]
        if isinstance(value, dict):
            return {"dict": {key: visit(item) for key, item in value.items()}}
        return value

    nesting = visit(data)
    floats = [index for index, value in enumerate(tensors) if value.is_floating_point()]
    dtype = str(tensors[floats[0]].dtype).removeprefix("torch.") if floats else None
    return [*tensors, {"data": nesting, "float": floats[0] if floats else None, "dtype": dtype}]


def unflatten(arguments):
    """The inverse of `flatten`, with new output buffers: float64 ones where the grader widened the inputs."""
    *tensors, layout = arguments
    wide = _is_widened(arguments)
    device = tensors[0].device if tensors else None

    def visit(value):
        if isinstance(value, list):
            return [visit(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "tensor" in value:
            return tensors[value["tensor"]]
        if "buffer" in value:
            dtype = getattr(torch, value["dtype"])
            wider = torch.float64 if wide and dtype.is_floating_point else dtype
            return torch.empty(value["buffer"], dtype=wider, device=device)
        if "tuple" in value:
            return tuple(visit(item) for item in value["tuple"])
        return {key: visit(item) for key, item in value["dict"].items()}

    return visit(layout["data"])


def _is_widened(arguments):
    *tensors, layout = arguments
    return layout["float"] is not None and tensors[layout["float"]].dtype != getattr(torch, layout["dtype"])


def in_precision_of(arguments, result):
    """The result, with float64 tensors converted to the dtype of the data.

    Some references compute in float64 to be exact.
    """
    dtype = arguments[-1]["dtype"]
    if dtype in (None, "float64") or _is_widened(arguments):
        return result
    if isinstance(result, torch.Tensor):
        return result.to(getattr(torch, dtype)) if result.dtype == torch.float64 else result
    if type(result) in (tuple, list):
        return type(result)(in_precision_of(arguments, item) for item in result)
    return result


def inputs_maker(generate_input, arguments, seeded):
    """get_inputs() for one line of task.yml; the seed is drawn anew each time."""

    def get_inputs():
        device = torch.get_default_device()
        with chosen(device) as mode:
            seed = {"seed": _drawn_seed(arguments.get("seed", 0))} if seeded else {}
            return flatten(generate_input(**{**arguments, **seed}), mode.empty)

    return get_inputs


def _drawn_seed(otherwise):
    """A seed from torch's generator, which the grader seeds; `otherwise` on a device without values."""
    try:
        return int(torch.randint(MAX_SEED, (), device="cpu"))
    except Exception:
        return otherwise


# --------------------------------------------------------------------------------------------------------- models


def model_of(kernel, redirected=False):
    """A model whose forward calls `kernel(data)`, without gradients, as the format has none.

    `redirected`: CUDA means the device of the inputs, and helper modules are there, also while it runs.
    """

    class Kernel(nn.Module):
        def forward(self, *arguments):
            with torch.no_grad():
                data = unflatten(arguments)
                if not redirected:
                    return in_precision_of(arguments, kernel(data))
                on_gpu = arguments[0].device.type == "cuda"
                with helpers_installed() if on_gpu else chosen(arguments[0].device):
                    return in_precision_of(arguments, kernel(data))

    return Kernel
