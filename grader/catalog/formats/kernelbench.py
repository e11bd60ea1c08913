"""KernelBench's format: a Python file with `class Model`, `get_inputs()` and `get_init_inputs()`.

`get_init_inputs()` is optional. `get_variants()`, an extension of this grader, returns further sizes. Submissions
define `class ModelNew`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from grader.catalog.files import existing, read_source, real
from grader.catalog.formats import Entry, NamedBy, NotAProblem, parsed, top_level_names
from grader.errors import UserError
from grader.verdict.models import Problem

_SAMPLE = re.compile(r"level_(?P<level>\d+)_problem_(?P<problem>\d+)_sample_(?P<sample>\d+)(_kernel)?")
"""Stem of a kernel in a KernelBench run; the run's folder is the author."""
_LEVEL = re.compile(r"level\d+")
"""Name of the folder of one of KernelBench's levels."""


class KernelBench:
    """Problem files named by their stem; `level1/23_Name` where several levels have that stem."""

    name = "kernelbench"
    looks_like = "a .py file with class Model and get_inputs()"
    entry = Entry("class", "ModelNew")

    def search_root(self, folder: Path) -> Path:
        """The folder of a checkout that has the levels.

        Other folders, such as prompts and tests, also define classes named Model.
        """
        levels = folder / "KernelBench"
        has_levels = levels.is_dir() and any(_LEVEL.fullmatch(path.name) for path in levels.iterdir())
        return levels if has_levels else folder

    def claims(self, path: Path) -> bool:
        """Whether it is a Python file; a file without a problem is skipped later, with the reason."""
        return path.suffix == ".py" and path.name != "__init__.py" and path.is_file()

    def is_helper(self, path: Path) -> bool:
        """No file: KernelBench's tooling lies outside `search_root`."""
        return False

    def read(self, path: Path) -> Problem:
        """The file as it stands. Raises NotAProblem."""
        source, unreadable = read_source(path)
        if unreadable:
            raise NotAProblem(unreadable)
        names = set(top_level_names(parsed(source, "the file")))
        required = (("Model", "class Model"), ("get_inputs", "get_inputs()"))
        missing = [text for name, text in required if name not in names]
        if missing:
            raise NotAProblem(f"it has no {' and no '.join(missing)}")
        path = real(path)
        level = f"{path.parent.name}/" if _LEVEL.fullmatch(path.parent.name) else ""
        return Problem(id=level + path.stem, path=path, source=source, format=self.name)

    def named_by(self, path: Path, problems: Mapping[str, Problem]) -> NamedBy | None:
        """The problem of `level_L_problem_P_sample_S_kernel.py`."""
        sample = _SAMPLE.fullmatch(path.stem)
        if sample is None:
            return None
        problem = _numbered(problems, sample["level"], sample["problem"])
        return NamedBy(problem.id, sample=int(sample["sample"]))

    def sample_of(self, path: Path) -> int | None:
        """The S of `level_L_problem_P_sample_S_kernel.py`."""
        sample = _SAMPLE.fullmatch(path.stem)
        return int(sample["sample"]) if sample else None

    def worker_source(self, source: str) -> str:
        """The source as it stands."""
        return source


FORMAT = KernelBench()


def samples_of_run(run: Path) -> list[Path]:
    """The kernels of a KernelBench run, sorted by level, problem and sample.

    Raises UserError if there are none.
    """
    if not existing(run).is_dir():
        raise UserError(f"{run}: a file; a KernelBench run is a folder of level_L_problem_P_sample_S_kernel.py")
    names = {path: _SAMPLE.fullmatch(path.stem) for path in run.glob("*.py")}
    samples = {path: tuple(map(int, name.group("level", "problem", "sample"))) for path, name in names.items() if name}
    if not samples:
        raise UserError(f"{run}: no level_L_problem_P_sample_S_kernel.py in it; give the folder of one KernelBench run")
    return sorted(samples, key=samples.__getitem__)


def _numbered(problems: Mapping[str, Problem], level: str, number: str) -> Problem:
    """The problem of that number: in `level{level}/`, the stem begins with `{number}_`."""
    matches = [
        problem
        for problem in problems.values()
        if problem.path.parent.name == f"level{level}" and problem.path.stem.partition("_")[0] == number
    ]
    if not matches:
        raise UserError(f"no problem {number} of level {level} is known; name a KernelBench checkout: --problems DIR")
    if len(matches) > 1:
        names = " and ".join(problem.path.name for problem in matches)
        raise UserError(f"problem {number} of level {level} may be {names}; remove one, or name it: --problem ID")
    return matches[0]
