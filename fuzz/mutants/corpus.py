"""Reads `problems/*.py`: small problems, each with a right submission whose forward and backward are written by hand.

A file has imports and sections. A section begins with `# %% name` and defines `Model`, `get_inputs`, perhaps
`get_init_inputs`, an autograd Function `Kernel`, and `forward`, the method of `ModelNew` that calls it. `ModelNew`'s
constructor is that of `Model`.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FOLDER = Path(__file__).parent / "problems"
SECTION = re.compile(r"^# %% (\w+)$", re.MULTILINE)


@dataclass(frozen=True)
class Entry:
    """A problem and its right submission, as syntax trees."""

    name: str
    problem: ast.Module
    submission: ast.Module

    @cached_property
    def problem_source(self) -> str:
        """The problem file."""
        return f'"""{self.name}."""\n\n{ast.unparse(self.problem)}\n'

    @cached_property
    def submission_source(self) -> str:
        """The right submission."""
        return ast.unparse(self.submission) + "\n"


def entries() -> dict[str, Entry]:
    """All problems by name, in the order of the files."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        header, *parts = SECTION.split(path.read_text())
        imports = [node for node in ast.parse(header).body if isinstance(node, ast.Import | ast.ImportFrom)]
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                raise ValueError(f"{path}: a second problem {name}")
            found[name] = _entry(name, imports, ast.parse(text).body)
    return found


def _entry(name: str, imports: Sequence[ast.stmt], body: list[ast.stmt]) -> Entry:
    definitions = {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    kernel, forward, model = definitions["Kernel"], definitions["forward"], copy.deepcopy(definitions["Model"])
    assert isinstance(model, ast.ClassDef)
    model.name = "ModelNew"
    model.body = [node for node in model.body if getattr(node, "name", "") != "forward"] + [forward]
    problem = [node for node in body if node not in (kernel, forward)]
    return Entry(
        name,
        ast.Module([*imports, *problem], type_ignores=[]),
        ast.Module([*imports, kernel, model], type_ignores=[]),
    )
