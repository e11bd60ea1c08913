"""Who may import whom, one way only. The workers' side of the trust boundary knows nothing of ours but the protocol."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ORDER = [
    {"grader", "grader.protocol", "grader.errors", "grader.codes", "grader.shipped", "grader.needs", "grader.labels"},
    {"grader.models"},
    {
        "grader.catalog",
        "grader.problem_module",
        "grader.remembered",
        "grader.rewards",
        "grader.sandbox",
        "grader.allocator",
        "grader.nursery",
        "grader.toolchain",
        "grader.work",
    },
    {"grader.remote", "grader.gradable", "grader.device_memory"},
    {"grader.stages", "grader.machine"},
    {"grader.record", "grader.workshop"},
    {"grader.appraisal", "grader.builds", "grader.trials"},
    {"grader.pipeline", "grader.selftest", "grader.checking"},
    {"grader.api"},
    {"db"},
    {"grader.doctor"},
    {"grader.report"},
    {"grader.serve"},
    {"grader.cli"},
    {"grader.__main__"},
]
"""A part may import from its own row and from those above it."""

WORKER = "grader.worker"
FRONT_DOOR = "grader"
"""`from grader import grade` finds what stands above it when it is first used; only type checkers see these imports."""


def files():
    return sorted([*(ROOT / "grader").rglob("*.py"), *(ROOT / "db").rglob("*.py")])


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part(module):
    """`grader.sandbox._policy` belongs to `grader.sandbox`; all of `db` is one part."""
    names = module.split(".")
    return "db" if names[0] == "db" else ".".join(names[:2])


def imported(path):
    """Modules of ours that a file imports anywhere in it, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide who imports whom"
            names = [f"{node.module}.{alias.name}" if node.module == "grader" else node.module for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] in ("grader", "db"))


def known(module):
    """`from grader import __version__` names an attribute of the package itself."""
    path = ROOT.joinpath(*module.split("."))
    return module if path.is_dir() or path.with_suffix(".py").exists() else module.rpartition(".")[0]


def rank(name):
    for position, parts in enumerate(ORDER):
        if name in parts:
            return position
    raise AssertionError(f"{name} has no place in the import order; give it one in {Path(__file__).name}")


@pytest.mark.parametrize("path", files(), ids=module_name)
def test_imports_go_one_way(path):
    own = part(module_name(path))
    for module in imported(path):
        other = part(known(module))
        if own == FRONT_DOOR:
            assert other in ("grader.api", "grader.errors", "grader.models", "grader.rewards", "grader.work")
        elif own == WORKER:
            assert other in (WORKER, "grader.protocol"), f"the worker imports {module}"
        else:
            assert other != WORKER, f"{own} imports the worker"
            assert rank(other) <= rank(own), f"{own} imports {module}, which stands above it"


def test_every_part_has_a_place():
    parts = {part(module_name(path)) for path in files()} - {WORKER}
    assert parts == set().union(*ORDER)
