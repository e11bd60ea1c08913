"""The language of docstrings, messages and pages: short first lines, complete diagnoses, standard terms.

CONTRIBUTING.md has the rules in words.
"""

import ast
import io
import itertools
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
MODULES = sorted([*(ROOT / "grader").rglob("*.py"), *(ROOT / "db").rglob("*.py")])
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

MAX_FIRST_LINE = 100
"""Characters of a docstring's first line."""

HOME_MADE = {
    "yardstick": "float32 baseline error",
    "golden": "reference, expected",
    "kink": "non-smooth point",
    "workshop": "resources",
    "nursery": "worker template",
    "load-bearing": "output dependence",
    "told": "text, result",
    "trap": "post-check, experiment",
    "desk": "the name of the module",
    "whoever": "a subject with a noun",
    "anybody": "a subject with a noun",
    "somebody": "a subject with a noun",
}
"""Terms that only this project has used, with the standard term."""

INVERTED = r"^(Who|Whose|Whom|What|Whatever|How|Where|Of|By|From|In|On|For|With|As) "
"""Openings of a first line that name neither a thing nor an action."""


def relative(path):
    return str(path.relative_to(ROOT))


def is_declared(node):
    """Whether a decorator says in words what the function asks, as `@experiment(..., question=...)` does."""
    return any(
        isinstance(one, ast.Call) and "question" in {keyword.arg for keyword in one.keywords}
        for one in node.decorator_list
    )


def definitions(tree):
    """(name, node, must it have a docstring) of a module and its public classes, functions and methods."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node.name, node, not is_declared(node)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and not inner.name.startswith("_"):
                    yield f"{node.name}.{inner.name}", inner, False


def complaints(path):
    """What is wrong with the docstrings of a file: (line, name, complaint)."""
    tree = ast.parse(path.read_text())
    for name, node, required in [("module", tree, bool(tree.body)), *definitions(tree)]:
        text = ast.get_docstring(node)
        line = getattr(node, "lineno", 1)
        if not text:
            # A migration's module docstring describes its only function.
            if required and path.parent.name != "versions" and not (path.name == "__init__.py" and node is tree):
                yield line, name, "has no docstring"
            continue
        first, *rest = text.splitlines()
        if len(first) > MAX_FIRST_LINE:
            yield line, name, f"first line has {len(first)} characters"
        if rest and rest[0].strip():
            yield line, name, "the first sentence goes on in the second line"
        elif first[-1] not in ".:":
            yield line, name, "first line ends without a period or colon"
        if re.match(INVERTED, first):
            yield line, name, f"first line names no subject: {first!r}"


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_first_lines_of_docstrings(path):
    assert [f"{relative(path)}:{line} {name}: {text}" for line, name, text in complaints(path)] == []


# ------------------------------------------------------------------------------------------------- diagnoses

NEED_PLACE_OR_AMOUNT = re.compile(r"^(grad_|output_(wrong|nan|shape|dtype)$|stale_output|timed_)")
"""Codes about a tensor's values or form: the message says where, or by how much."""


def diagnoses():
    """Each call of `diagnose(...)`: (file, call)."""
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "diagnose":
                yield path, node


def arguments(call):
    """The call's arguments by name."""
    positional = dict(zip(("code", "what"), call.args, strict=False))
    return positional | {keyword.arg: keyword.value for keyword in call.keywords}


def texts(node):
    """All string constants in an expression, parts of f-strings included."""
    return [one.value for one in ast.walk(node) if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def place(path, call):
    return f"{relative(path)}:{call.lineno}"


def test_every_error_and_warning_has_a_remedy():
    missing = []
    for path, call in diagnoses():
        given = arguments(call)
        severity = given.get("severity")
        informs = isinstance(severity, ast.Constant) and severity.value == "info"
        # `**fields` hands over arguments that are checked where they are made.
        if not informs and "remedy" not in given and None not in given:
            missing.append(place(path, call))
    assert missing == []


def test_a_diagnosis_of_a_tensor_says_where_or_by_how_much():
    missing = []
    for path, call in diagnoses():
        given = arguments(call)
        codes = texts(given["code"]) if "code" in given else []
        if any(NEED_PLACE_OR_AMOUNT.match(code) for code in codes) and not {"where", "amount", None} & given.keys():
            missing.append(f"{place(path, call)} {codes}")
    assert missing == []


def test_messages_are_in_standard_terms():
    words = re.compile(rf"\b({'|'.join(map(re.escape, HOME_MADE))}|who|whom)s?\b", re.IGNORECASE)
    found = []
    for path, call in diagnoses():
        given = arguments(call)
        for name in ("what", "where", "amount", "remedy"):
            for text in texts(given[name]) if name in given else []:
                found += [f"{place(path, call)} {match[0]!r} in {text!r}" for match in words.finditer(text)]
    assert found == []


# ------------------------------------------------------------------------------------------------- terms


def home_made(text):
    """(term, standard term) of each home-made term in a text; code in backquotes is left out."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    for term, standard in HOME_MADE.items():
        if re.search(rf"\b{re.escape(term)}s?\b", text, re.IGNORECASE):
            yield term, standard


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_pages_use_standard_terms(path):
    assert [f"{term}: write {standard}" for term, standard in home_made(path.read_text())] == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_comments_use_standard_terms(path):
    tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
    comments = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    assert [(line, term, standard) for line, text in comments for term, standard in home_made(text)] == []


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_docstrings_use_standard_terms(path):
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            for term, standard in home_made(node.value.value):
                found.append(f"{relative(path)}:{node.lineno} {term}: write {standard}")
    assert found == []


RETIRED = {"told", "said", "asked", "yardstick", "kink", "golden", "light", "bracket", "nursery", "workshop", "desk"}
"""Words in names: participles that say nothing of what a variable holds, and home-made terms."""


@pytest.mark.parametrize("path", MODULES, ids=relative)
def test_variables_are_named_after_what_they_hold(path):
    nodes = ast.walk(ast.parse(path.read_text()))
    bound = [
        (node.lineno, node.id if isinstance(node, ast.Name) else getattr(node, "arg", getattr(node, "attr", "")))
        for node in nodes
        if isinstance(node, ast.arg) or (isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store))
    ]
    assert [f"{relative(path)}:{line} {name}" for line, name in bound if RETIRED & set(name.lower().split("_"))] == []


# ------------------------------------------------------------------------------------------------- thresholds

MOST_THRESHOLDS = 80
"""Named thresholds of judgement and timing together."""


def thresholds(path):
    """(name, docstring) of each module constant with a number in its value; an alias or a ratio of others is none."""
    body = ast.parse(path.read_text()).body
    for node, following in itertools.zip_longest(body, body[1:]):
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        numbers = [one.value for one in ast.walk(node.value) if isinstance(one, ast.Constant)]
        if not any(type(number) in (int, float) for number in numbers):
            continue
        text = following.value.value if isinstance(following, ast.Expr) else ""
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from ((name.id, text) for name in ast.walk(target) if isinstance(name, ast.Name))


def test_named_thresholds_are_few_and_described():
    """A threshold is a module's constant in `grader/grading` with a number in it."""
    found = {
        f"{relative(path)} {name}": text
        for path in sorted((ROOT / "grader" / "grading").rglob("*.py"))
        for name, text in thresholds(path)
    }
    assert [name for name, text in found.items() if not text] == []
    assert len(found) <= MOST_THRESHOLDS, "\n".join(found)
