"""GPU MODE's format: a folder with `task.yml` and `reference.py`. Forward only.

`reference.py` has `ref_kernel(data)` and `generate_input(**arguments)`. Its `check_implementation` is not used: the
grader compares outputs itself. Lines of `tests:` in task.yml are the small variants, the largest of `benchmarks:` is
`full`. Submissions are files with `custom_kernel(data)`. See `_gpumode_adapter` for data, seeds and devices.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from grader.catalog.files import read_source, real
from grader.catalog.formats import Entry, NamedBy, NotAProblem, parsed, top_level_names
from grader.verdict.models import Problem
from grader.verdict.python_source import parse

_ADAPTER = Path(__file__).with_name("_gpumode_adapter.py").read_text()
_HELPERS = re.compile(r"(eval|utils|template)\w*\.py")
"""Other files beside problem folders: GPU MODE's evaluator, comparison and submission templates."""
_RESERVED = ("Model", "get_inputs", "get_init_inputs", "get_variants")
_UTILS = frozenset({
    "make_match_reference", "match_reference", "verbose_allclose", "verbose_allequal", "DeterministicContext",
    "DisableCuDNNTF32", "set_seed", "get_device", "clear_l2_cache",
})  # fmt: skip
"""Names of GPU MODE's `utils` that the adapter offers."""

Arguments = Mapping[str, object]
"""Keyword arguments of `generate_input`: one line of `tests:` or `benchmarks:`."""


class GpuMode:
    """Problem folders, with ids `name`, or `group/name` if several groups have the name."""

    name = "gpumode"
    looks_like = "a folder with task.yml and reference.py"
    entry = Entry("function", "custom_kernel")

    def search_root(self, folder: Path) -> Path:
        """The folder itself."""
        return folder

    def claims(self, path: Path) -> bool:
        """A folder with both files, or one of these files, given by name."""
        folder = path if path.is_dir() else path.parent
        named = path.is_dir() or path.name in ("task.yml", "reference.py")
        return named and (folder / "task.yml").is_file() and (folder / "reference.py").is_file()

    def is_helper(self, path: Path) -> bool:
        """Whether a file is an evaluator or a template beside problem folders."""
        return bool(_HELPERS.fullmatch(path.name)) and any(path.parent.glob("*/task.yml"))

    def read(self, path: Path) -> Problem:
        """The reference with the adapter around it. Raises NotAProblem."""
        folder = real(path if path.is_dir() else path.parent)
        tests, benchmarks = _sizes(folder / "task.yml")
        source, unreadable = read_source(folder / "reference.py")
        if unreadable:
            raise NotAProblem(f"reference.py: {unreadable}")
        tree = parsed(source, "reference.py")
        _check_names(tree)
        variants = ", ".join(
            f"{name!r}: (list, _gpumode.inputs_maker(generate_input, {dict(arguments)!r}, {_is_seeded(tree)}))"
            for name, arguments in _variants(tests, benchmarks).items()
        )
        behind = (
            f"Model = _gpumode.model_of(ref_kernel, redirected={_needs_redirection(tree)})\n"
            f"_gpumode_variants = {{{variants}}}\n"
            "get_variants = lambda: _gpumode_variants\n"
            "get_inputs = _gpumode_variants['full'][1]\n"
            "_gpumode.leave(_gpumode_before)\n"
        )
        return Problem(
            id=f"{folder.parent.name}/{folder.name}",
            path=folder / "reference.py",
            source=_enclosed(source, behind),
            format=self.name,
        )

    def named_by(self, path: Path, problems: Mapping[str, Problem]) -> NamedBy | None:
        """None: files are named by the problem's id, as in every format."""
        return None

    def sample_of(self, path: Path) -> int | None:
        """None: the format has no samples."""
        return None

    def worker_source(self, source: str) -> str:
        """The submission with the adapter around it; its lines keep their numbers wherever the syntax allows."""
        return _enclosed(source, "ModelNew = _gpumode.model_of(custom_kernel)\n")


FORMAT = GpuMode()


# -------------------------------------------------------------------------------------------------------- task.yml


def _sizes(path: Path) -> tuple[list[Arguments], list[Arguments]]:
    """(tests, benchmarks). Raises NotAProblem."""
    text, unreadable = read_source(path)
    if unreadable:
        raise NotAProblem(f"task.yml: {unreadable}")
    import yaml

    try:
        task = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise NotAProblem(f"task.yml is not valid YAML{where}; correct it") from None
    if not isinstance(task, dict):
        raise NotAProblem("task.yml is not a mapping; give it `tests` and `benchmarks`")
    if task.get("lang", "py") != "py":
        raise NotAProblem(f"task.yml: lang is {task['lang']!r}; only py is supported")
    if task.get("multi_gpu"):
        raise NotAProblem("task.yml: multi_gpu is set; only problems for one GPU are supported")
    return _lines(task, "tests"), _lines(task, "benchmarks")


def _lines(task: Mapping[str, object], key: str) -> list[Arguments]:
    lines = task.get(key)
    if not isinstance(lines, list) or not lines or not all(isinstance(line, dict) for line in lines):
        raise NotAProblem(f"task.yml has no list of mappings in {key}; add the arguments of generate_input there")
    return lines


def _variants(tests: Sequence[Arguments], benchmarks: Sequence[Arguments]) -> dict[str, Arguments]:
    """Variants from the tests, smallest first: `small`, `test2`, ..., `cpu`; `full`.

    Tests that differ in their seed only are one variant. The largest test is `cpu`, which is timed instead of `full` on
    a CPU.
    """
    distinct = {repr(_without_seed(test)): test for test in tests}
    ordered = sorted(distinct.values(), key=_size)
    names = ["small", *(f"test{number}" for number in range(2, len(ordered) + 1))]
    smaller = ordered[:-1] or ordered
    return {**dict(zip(names, smaller, strict=False)), "cpu": ordered[-1], "full": max(benchmarks, key=_size)}


def _without_seed(arguments: Arguments) -> dict[str, object]:
    return {name: value for name, value in arguments.items() if name != "seed"}


def _size(arguments: Arguments) -> float:
    """An estimate of the work: the product of all numbers in the arguments, with lists summed."""
    return math.prod(max(_number(value), 1.0) for value in _without_seed(arguments).values())


def _number(value: object) -> float:
    if isinstance(value, list):
        return sum(map(_number, value))
    return float(value) if isinstance(value, int | float) else 1.0


# ---------------------------------------------------------------------------------------------------- reference.py


def _check_names(tree: ast.Module) -> None:
    names = set(top_level_names(tree))
    missing = [name for name in ("ref_kernel", "generate_input") if name not in names]
    if missing:
        raise NotAProblem(f"reference.py has no {' and no '.join(missing)}")
    taken = sorted(names.intersection(_RESERVED))
    if taken:
        raise NotAProblem(f"reference.py defines {taken[0]}, which the grader adds; rename it")
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "utils":
            unknown = sorted({name.name for name in node.names} - _UTILS)
            if unknown:
                remedy = "define it in reference.py"
                raise NotAProblem(f"reference.py imports {unknown[0]} from utils, which the grader lacks; {remedy}")


def _is_seeded(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.FunctionDef)
        and node.name == "generate_input"
        and any(argument.arg == "seed" for argument in (*node.args.args, *node.args.kwonlyargs))
        for node in tree.body
    )


def _needs_redirection(tree: ast.Module) -> bool:
    """Whether code outside generate_input names CUDA or imports a helper module while it runs.

    Redirecting costs time at each operation, so references that do not need it run without.
    """
    for statement in tree.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "generate_input":
            continue
        for node in ast.walk(statement):
            match node:
                case ast.Constant(value=str(text)) if re.fullmatch(r"cuda(:\d+)?", text):
                    return True
                case ast.Attribute(attr="cuda"):
                    return True
                case ast.ImportFrom(module="utils" | "task") if node is not statement:
                    return True
    return False


# --------------------------------------------------------------------------------------------------------- adapter


def _enclosed(source: str, behind: str) -> str:
    """The source with the adapter in front of its first statement and `behind` at its end."""
    front = (
        f'exec({_ADAPTER!r}, (_gpumode := __import__("types").ModuleType("_gpumode")).__dict__); '
        "_gpumode_before = _gpumode.enter()"
    )
    return f"{_inserted(source, front)}\n\n{behind}"


def _inserted(source: str, statement: str) -> str:
    """Inserts the statement after the docstring and `__future__` imports, on an existing line if possible."""
    try:
        body = parse(source).body
    except SyntaxError:
        return f"{statement}\n{source}"
    header = _last_of_header(body)
    lines = re.split(r"(?<=\n)|(?<=\r)(?!\n)", source)
    if header is not None and header.end_lineno is not None:
        line = lines[header.end_lineno - 1].encode()
        end = header.end_col_offset
        lines[header.end_lineno - 1] = (line[:end] + f"; {statement}".encode() + line[end:]).decode()
        return "".join(lines)
    first = body[0] if body else None
    if first is None or (first.lineno > 1 and not getattr(first, "decorator_list", None)):
        return f"{statement}  {source}"  # the first line is blank or a comment
    if isinstance(first, ast.Import | ast.ImportFrom | ast.Assign | ast.Expr):
        return f"{statement}; {source}"
    return f"{statement}\n{source}"


def _last_of_header(body: Sequence[ast.stmt]) -> ast.stmt | None:
    """The last of a module's docstring and its imports from __future__."""
    header: ast.stmt | None = None
    for index, node in enumerate(body):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) if index == 0:
                header = node
            case ast.ImportFrom(module="__future__"):
                header = node
            case _:
                break
    return header
