"""The interface of a problem format, and the formats by name.

A format recognizes and reads problems, and names and runs submissions. Each module of this package without a leading
underscore in its name declares one format as `FORMAT`.
"""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, Protocol

from grader.errors import summary
from grader.verdict.models import Problem


class NotAProblem(Exception):
    """A file or folder is not a usable problem. The message is the reason and its remedy, in one line."""


@dataclass(frozen=True)
class Entry:
    """The definition in a submission that is graded."""

    kind: Literal["class", "function"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class NamedBy:
    """The parts of a submission's file name."""

    problem_id: str
    label: str | None = None
    sample: int | None = None


class ProblemFormat(Protocol):
    """One way to write problems. Each method reads text and names alone; nothing is imported.

    `read` translates a problem into a self-contained Python source in the grader's own form, which is KernelBench's:
    `class Model(nn.Module)`, `get_inputs()`, and optionally `get_init_inputs()` and `get_variants()`. That source is
    hashed, stored, imported by the grader to make inputs, and sent to the worker that runs the reference.
    """

    name: str
    """Key of the format, stored in `Problem.format` and `Submission.format`."""
    looks_like: str
    """What a problem of this format is, for a message about a folder without one."""
    entry: Entry

    def search_root(self, folder: Path) -> Path:
        """The folder to search for problems: the same, or a part of it where the format has a fixed layout."""
        ...

    def claims(self, path: Path) -> bool:
        """Whether a file or folder is meant as a problem of this format, by names alone.

        A claimed folder is one problem and is not searched further.
        """
        ...

    def is_helper(self, path: Path) -> bool:
        """Whether a file belongs to the format's own tooling, so that it is no problem in any format."""
        ...

    def read(self, path: Path) -> Problem:
        """The claimed problem, with the id `group/name` or `name`. Raises NotAProblem."""
        ...

    def named_by(self, path: Path, problems: Mapping[str, Problem]) -> NamedBy | None:
        """The problem that this format's own file naming gives; None for other names.

        Raises UserError where the name follows the format but no known problem fits.
        """
        ...

    def sample_of(self, path: Path) -> int | None:
        """Which of several samples a file is, by this format's own file naming; None for other names."""
        ...

    def worker_source(self, source: str) -> str:
        """The source of a submission as the worker imports it: it defines `class ModelNew`."""
        ...


def parsed(source: str, file_name: str) -> ast.Module:
    """The syntax tree of a problem's file. Raises NotAProblem with the line of a syntax error."""
    try:
        return ast.parse(source)
    except SyntaxError as error:
        where = f" at line {error.lineno}" if error.lineno else ""
        raise NotAProblem(f"syntax error in {file_name}{where}: {error.msg}; correct it") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise NotAProblem(f"{file_name} is not valid Python: {summary(error)}; correct it") from None


def top_level_names(tree: ast.Module) -> Iterator[str]:
    """Names that a module defines, assigns or imports by name at its top level."""
    for statement in tree.body:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)


def declared() -> Mapping[str, ProblemFormat]:
    """The formats of the modules in this package, by name."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_"))
    formats: list[ProblemFormat] = [importlib.import_module(f"{__name__}.{name}").FORMAT for name in names]
    return MappingProxyType({one.name: one for one in formats})


FORMATS: Mapping[str, ProblemFormat] = declared()
"""By name, in the order in which they are asked whether a path is theirs."""
