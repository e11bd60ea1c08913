"""Imports a problem's source: its Model, its variants and the names of its inputs.

Problem sources are trusted and run in this process. They are imported under a private name, so that code behind
`if __name__ == "__main__"` does not run and two folders may hold problems of the same name. Every format translates its
problems to this form (see `grader.catalog.formats`).
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from torch import nn

from grader.errors import ProblemError, summary
from grader.protocol import encode_value
from grader.verdict.models import SHARES_OF_ROWS, Problem

FULL = "full"
"""The variant of the module's own `get_inputs` and `get_init_inputs`, whose sizes are timed."""
RESERVED = ("rows", *SHARES_OF_ROWS)
"""Names of the variants that the grader makes of the full size (`grading/oracle/fewer_rows.py`)."""

SUPPORTED_ARGUMENTS = (
    "get_inputs may return dense tensors, each as an argument of its own; other arguments, and those of "
    "get_init_inputs, are None, bools, numbers, strings, and lists, tuples and dictionaries of those"
)
"""The remedy for arguments that cannot be sent to a worker."""

Maker = Callable[[], Sequence[Any]]
"""Returns new positional arguments each time it is called."""


@dataclass(frozen=True)
class Variant:
    """One set of sizes of a problem."""

    make_init_inputs: Maker
    """Positional arguments of `Model.__init__`."""
    make_inputs: Maker
    """Positional arguments of `Model.forward`."""


@dataclass(frozen=True)
class ProblemModule:
    """An imported problem."""

    model_class: type[nn.Module]
    variants: Mapping[str, Variant]
    """In the file's order. `full` always exists and comes last unless the file places it."""
    forward_arguments: tuple[str, ...]
    """Names of the positional parameters of `Model.forward`."""

    def in_dtype(self, dtype: torch.dtype) -> ProblemModule:
        """The problem with the floating tensors of its inputs in this type, but those of one byte."""

        def converted(make: Maker) -> Maker:
            return lambda: [_converted(value, dtype) for value in make()]

        variants = {name: replace(one, make_inputs=converted(one.make_inputs)) for name, one in self.variants.items()}
        return replace(self, variants=MappingProxyType(variants))

    def argument_name(self, index: int) -> str:
        """The name of the forward's input at a position; `input[index]` if the signature has none."""
        return self.forward_arguments[index] if index < len(self.forward_arguments) else f"input[{index}]"


def load_problem(problem: Problem) -> ProblemModule:
    """Import a problem.

    Raises ProblemError with a message of one line: the file, what is missing, the remedy.
    """
    module = _import(problem)
    model_class = getattr(module, "Model", None)
    if not (isinstance(model_class, type) and issubclass(model_class, nn.Module)):
        raise ProblemError(f"{problem.path}: there is no `class Model(nn.Module)`; add the reference under that name")
    return ProblemModule(
        model_class=model_class,
        variants=MappingProxyType(_variants(problem, module)),
        forward_arguments=_forward_arguments(model_class),
    )


def _converted(value: Any, dtype: torch.dtype) -> Any:
    narrow = isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1
    return value.to(dtype) if narrow else value


def _import(problem: Problem) -> ModuleType:
    name = f"_grader_problem_{problem.source_hash[:16]}_{problem.id}"
    module = ModuleType(name)
    module.__file__ = str(problem.path)
    # Dataclasses and torch.jit look up their module by name.
    sys.modules[name] = module
    try:
        exec(compile(problem.source, str(problem.path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        if isinstance(error, ModuleNotFoundError) and error.name is not None and _is_missing(error.name):
            package = error.name.partition(".")[0]
            raise ProblemError(
                f"{problem.path}: needs the package `{package}`, which is not installed here; install it (pip install "
                f"{package}), or make the file importable on its own"
            ) from error
        raise ProblemError(
            f"{problem.path}: importing the problem raised {summary(error)}; make the file importable on its own"
        ) from error
    return module


def _is_missing(module: str) -> bool:
    """Whether the whole package is missing, and not a part of it that another version has."""
    return importlib.util.find_spec(module.partition(".")[0]) is None


def _variants(problem: Problem, module: ModuleType) -> dict[str, Variant]:
    variants = {name: _variant(problem, name, makers) for name, makers in _declared(problem, module).items()}
    if FULL not in variants:
        variants[FULL] = Variant(
            make_init_inputs=_maker(problem, module, "get_init_inputs") if hasattr(module, "get_init_inputs") else list,
            make_inputs=_maker(problem, module, "get_inputs", tensors=True),
        )
    return variants


def _declared(problem: Problem, module: ModuleType) -> Mapping[str, object]:
    get_variants = getattr(module, "get_variants", dict)
    try:
        declared: object = get_variants()
    except Exception as error:
        raise ProblemError(
            f"{problem.path}: get_variants() raised {summary(error)}; return callables from it, not tensors"
        ) from error
    if not isinstance(declared, Mapping) or not all(isinstance(name, str) for name in declared):
        raise ProblemError(
            f"{problem.path}: get_variants() returned a {type(declared).__name__}; "
            "return a dict of name -> (get_init_inputs, get_inputs)"
        )
    taken = next((name for name in RESERVED if name in declared), None)
    if taken is not None:
        raise ProblemError(f"{problem.path}: the grader has a variant {taken!r} of its own; give yours another name")
    return declared


def _variant(problem: Problem, name: str, makers: object) -> Variant:
    match makers:
        case (init_inputs, inputs) if callable(init_inputs) and callable(inputs):
            return Variant(
                make_init_inputs=_checked(problem, init_inputs, f"get_init_inputs of variant {name!r}"),
                make_inputs=_checked(problem, inputs, f"get_inputs of variant {name!r}", tensors=True),
            )
    raise ProblemError(
        f"{problem.path}: variant {name!r} is not a pair of callables; write (get_init_inputs, get_inputs)"
    )


def _maker(problem: Problem, module: ModuleType, name: str, *, tensors: bool = False) -> Maker:
    maker: Maker | None = getattr(module, name, None)
    if maker is None or not callable(maker):
        raise ProblemError(f"{problem.path}: there is no `{name}()`; add one that returns a list of arguments")
    return _checked(problem, maker, f"{name}()", tensors=tensors)


def _checked(problem: Problem, maker: Maker, name: str, *, tensors: bool = False) -> Maker:
    """Wraps a maker: it raises ProblemError if the result is not a list or cannot be sent to a worker."""

    def make() -> Sequence[Any]:
        try:
            values = maker()
        except torch.OutOfMemoryError:  # which says nothing about the problem
            raise
        except Exception as error:
            raise ProblemError(f"{problem.path}: {name} raised {summary(error)}") from error
        if not isinstance(values, list | tuple):
            raise ProblemError(
                f"{problem.path}: {name} returned a {type(values).__name__}; return a list of positional arguments"
            )
        for value in values:
            if tensors and isinstance(value, torch.Tensor) and value.layout is torch.strided:
                continue
            try:
                encode_value(value)
            except TypeError as error:
                raise ProblemError(f"{problem.path}: {name}: {error}; {SUPPORTED_ARGUMENTS}") from error
        return values

    return make


def _forward_arguments(model_class: type[nn.Module]) -> tuple[str, ...]:
    parameters = list(inspect.signature(model_class.forward).parameters.values())[1:]
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(parameter.name for parameter in parameters if parameter.kind in positional)
