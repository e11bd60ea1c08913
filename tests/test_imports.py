"""The order in which packages may import each other, and no import cycle between modules.

The worker's side of the trust boundary imports nothing of this project but the protocol.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

ORDER = [
    {"grader", "grader._version", "grader.ending", "grader.errors", "grader.protocol"},
    {"grader.verdict"},
    {"grader.options"},
    {"grader.catalog", "grader.sandbox"},
    {"grader.machine"},
    {"grader.executor"},
    {"grader.grading"},
    {"grader.api"},
    {"grader.client", "grader.pool"},
    {"db"},
    {"grader.batch"},
    {"grader.report"},
    {"grader.serve"},
    {"grader.cli", "grader.__main__"},
]
"""A package may import from its own row and from the rows above it. CONTRIBUTING.md shows the same rows."""

GRADING = ["compare", "oracle", "candidate", "patterns", "random", "forward", "backward", "timing"]
"""The packages of grader.grading: each imports only those before it. CONTRIBUTING.md shows the same order."""

WORKER = "grader.worker"
FRONT_DOOR = "grader"
"""`from grader import grade` loads its names lazily."""


def files():
    return sorted([*(ROOT / "grader").rglob("*.py"), *(ROOT / "db").rglob("*.py")])


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package(module):
    """The package of a module: `grader.sandbox` for `grader.sandbox._policy`, `db` for all of db."""
    names = module.split(".")
    return "db" if names[0] == "db" else ".".join(names[:2])


def imported(path):
    """This project's modules that a file imports anywhere, inside functions and for type annotations too.

    A package that imports whatever is in its folder when it is imported, as a registry does, imports all of that.
    """
    source = path.read_text()
    if re.search(r"^for .*iter_modules\(__path__\)", source, re.MULTILINE):
        yield from (module_name(other) for other in path.parent.glob("*.py") if other != path)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide which package is imported"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (module(name) for name in names if name.split(".")[0] in ("grader", "db"))


def module(name):
    """The module of a dotted name: `grader.errors` for `grader.errors.UserError`."""
    path = ROOT.joinpath(*name.split("."))
    return name if path.is_dir() or path.with_suffix(".py").exists() else name.rpartition(".")[0]


def row(name):
    for position, packages in enumerate(ORDER):
        if name in packages:
            return position
    raise AssertionError(f"{name} has no row in ORDER; add it in {Path(__file__).name}")


@pytest.mark.parametrize("path", files(), ids=module_name)
def test_imports_go_one_way(path):
    own = package(module_name(path))
    for name in imported(path):
        other = package(name)
        if own == FRONT_DOOR:
            assert other != WORKER, f"the package root imports {name}"
        elif own == WORKER:
            assert other in (WORKER, "grader.protocol"), f"the worker imports {name}"
        else:
            assert other != WORKER, f"{own} imports the worker"
            assert row(other) <= row(own), f"{own} imports {name}, which is in a later row"


@pytest.mark.parametrize("name", GRADING)
def test_packages_of_grading_import_those_before_them(name):
    later = {f"grader.grading.{other}" for other in GRADING[GRADING.index(name) + 1 :]}
    for path in sorted((ROOT / "grader" / "grading" / name).rglob("*.py")):
        found = {".".join(other.split(".")[:3]) for other in imported(path)}
        assert not found & later, f"{module_name(path)} imports a later package"
    assert {path.parent.name for path in (ROOT / "grader" / "grading").glob("*/__init__.py")} == set(GRADING)


def test_tensors_are_compared_without_the_rest_of_a_grading():
    for path in sorted((ROOT / "grader" / "grading" / "compare").glob("*.py")):
        others = [other for other in imported(path) if other.startswith("grader.grading.")]
        assert all(other.startswith("grader.grading.compare.") for other in others if other != "grader.grading.compare")


def test_every_package_has_a_row():
    assert {package(module_name(path)) for path in files()} - {WORKER} == set().union(*ORDER)


def test_contributing_shows_the_same_rows():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\d+\. (`.*`)$", text, re.MULTILINE)
    shown = [set(re.findall(r"`([\w.]+)`", line)) for line in rows]
    assert shown == ORDER, "run `python -m scripts.architecture_picture`"
    assert ", ".join(f"`{name}`" for name in GRADING) in text


def test_no_module_takes_part_in_an_import_cycle():
    """The package root is left out: it loads its names lazily."""
    graph = {module_name(path): set(imported(path)) - {FRONT_DOOR} for path in files()}
    done = set()

    def visit(name, trail):
        assert name not in trail, "import cycle: " + " -> ".join([*trail[trail.index(name) :], name])
        if name not in done:
            for other in sorted(graph.get(name, set()) - {name}):
                visit(other, [*trail, name])
            done.add(name)

    for name in sorted(set(graph) - {FRONT_DOOR}):
        visit(name, [])


@pytest.mark.parametrize("path", files(), ids=module_name)
def test_a_module_has_at_most_300_lines(path):
    lines = len(path.read_text().splitlines())
    assert lines <= 300, f"{path.relative_to(ROOT)} has {lines} lines: split it by ideas"
