"""Write the documentation's reference pages from the code: commands, verdict, statuses, codes, database, Python.

    python -m scripts.reference_pages

`make docs` does it first, and a test compares the pages with the code.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from itertools import groupby, pairwise
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any, NamedTuple

import typer
from pydantic import BaseModel
from sqlmodel import SQLModel

import db.tables
import grader
import grader.cli
from grader import api
from grader.catalog import requests
from grader.client import AsyncClient, Client
from grader.pool import GraderPool
from grader.verdict import models, rewards, stages
from grader.verdict.codes import CODES
from grader.verdict.columns import COLUMNS
from grader.verdict.feedback.text import feedback
from grader.verdict.labels import LABELS
from scripts import rejection_page

DOCS = Path(__file__).resolve().parents[1] / "docs"


def pages() -> dict[str, str]:
    """The text of each page, by its path below docs/."""
    return {
        "reference/cli.md": command_line(),
        "reference/verdict.md": verdict(),
        "reference/verdict.schema.json": json.dumps(models.Verdict.model_json_schema(mode="serialization"), indent=2)
        + "\n",
        "reference/statuses.md": statuses(),
        "reference/database.md": database(),
        "reference/python.md": python(),
        "how-to/rejected.md": rejection_page.page(),
    }


def main() -> None:
    for path, text in pages().items():
        (DOCS / path).write_text(text)


# ------------------------------------------------------------------------------------------------- command line


def commands() -> Iterator[tuple[str, Any]]:
    """The commands by full name, such as `grade` and `problems add`."""

    def below(prefix: str, command: Any) -> Iterator[tuple[str, Any]]:
        for name, sub in getattr(command, "commands", {}).items():
            path = f"{prefix} {name}".strip()
            yield path, sub
            yield from below(path, sub)

    yield from below("", typer.main.get_command(grader.cli.app))


def command_line() -> str:
    parts = ["# Command line", *(inspect.getdoc(grader.cli) or "").split("\n\n")]
    for name, command in commands():
        parts += [f"## grader {name}", *_help(command.help or ""), *_parameters(command)]
    return _joined(parts)


def _help(text: str) -> Iterator[str]:
    for paragraph in inspect.cleandoc(text.replace("\b\n", "")).split("\n\n"):
        lines = paragraph.splitlines()
        if re.fullmatch(r"Examples?:", lines[0]):
            yield "```\n" + "\n".join(line.strip() for line in lines[1:]) + "\n```"
        else:
            yield _escaped(paragraph)


def _parameters(command: Any) -> Iterator[str]:
    rows = []
    for parameter in command.params:
        if parameter.name == "help":
            continue
        if parameter.param_type_name == "argument":
            rows.append((f"`{parameter.metavar or parameter.name}`", "", "", _escaped(parameter.help or "")))
            continue
        default, is_flag = parameter.default, parameter.is_flag
        value = "" if is_flag else "|".join(type(default)) if isinstance(default, StrEnum) else parameter.metavar or ""
        shown = f"`{_plain(default)}`" if isinstance(default, str | int) and not is_flag else ""
        rows.append(
            (", ".join(f"`{text}`" for text in parameter.opts), _code(value), shown, _escaped(parameter.help or ""))
        )
    if rows:
        yield _table(("", "value", "default", ""), rows)


def _plain(value: object) -> str:
    return str(getattr(value, "value", value))


# ------------------------------------------------------------------------------------------------------ verdict


def verdict() -> str:
    described = _reachable(models.Verdict)
    parts = [
        "# A verdict",
        "The document that `grader grade --json` and `grader show ID --json` print, that the database stores, and that "
        f"`grade()` returns as an object. `schema_version` is {models.SCHEMA_VERSION}. As a JSON schema: "
        "[verdict.schema.json](verdict.schema.json).",
        *(inspect.getdoc(models) or "").split("\n\n")[1:],
    ]
    for model in described:
        fields = _fields(model)
        rows = [(f"`{name}`", _linked(fields[name].type, described), fields[name].text) for name in model.model_fields]
        parts += [
            f"## {model.__name__}",
            _escaped(inspect.cleandoc(vars(model).get("__doc__") or "")),
            _table(("field", "type", ""), rows),
        ]
    return _joined(parts)


def _reachable(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The model and the models of its fields, in that order."""
    found = [model]
    for one in found:
        names = vars(sys.modules[one.__module__])
        for field in _fields(one).values():
            inner = [names.get(word) for word in re.findall(r"\w+", field.type)]
            models_in_it = [other for other in inner if inspect.isclass(other) and issubclass(other, BaseModel)]
            found += [other for other in models_in_it if other not in found]
    return found


def _linked(text: str, described: Sequence[type[BaseModel]]) -> str:
    names = {model.__name__ for model in described}
    inner = next((word for word in re.findall(r"\w+", text) if word in names), None)
    if inner:
        return f"[`{text}`](#{inner.lower()})"
    enum = next((word for word in ("Status", "StageStatus") if re.search(rf"\b{word}\b", text)), None)
    return f"[`{text}`](statuses.md)" if enum else _code(text)


# -------------------------------------------------------------------------------------------- statuses and codes


def statuses() -> str:
    by_stage = {stage: [name for name, code in CODES.items() if code.stage == stage] for stage in _stages()}
    of_stages = _fields(stages.StageStatus)
    stage_statuses = [(f"`{one}`", of_stages[one.name].text) for one in stages.StageStatus]
    parts = [
        "# Statuses, codes and labels",
        "## Status of a verdict",
        _escaped(inspect.getdoc(models.Status) or ""),
        _table(("status", ""), [(f"`{one}`", _fields(models.Status)[one.name].text) for one in models.Status]),
        "## Status of a stage",
        _table(("status", ""), stage_statuses),
        "## Diagnosis codes",
        "A verdict's `diagnoses` say what to change: errors first, causes before consequences. Codes are stable. "
        'A message reads "what (where), by how much: remedy" and may change.',
    ]
    for stage, names in by_stage.items():
        rows = [(f"`{name}`", _escaped(CODES[name].meaning), _escaped(CODES[name].remedy)) for name in names]
        parts += [f"### {stage}", _table(("code", "meaning", "remedy"), rows)]
    parts += [
        "## Labels",
        "A label informs and does not reject. Most labels are derived from the source.",
        _table(("label", ""), [(f"`{name}`", _escaped(text)) for name, text in LABELS.items()]),
    ]
    return _joined(parts)


def _stages() -> list[str]:
    return list(dict.fromkeys(code.stage for code in CODES.values()))


# ----------------------------------------------------------------------------------------------------- database


def database() -> str:
    by_table = {one.__tablename__: one for one in vars(db.tables).values() if hasattr(one, "__tablename__")}
    described = {column.name: column.description for column in COLUMNS}
    parts = ["# Database", *(inspect.getdoc(db.tables) or "").split("\n\n")]
    for table in SQLModel.metadata.sorted_tables:
        model = by_table.get(table.name)
        fields = {} if model is None else _fields(model)
        text = _documented_name(db.tables, table.name)[1] if model is None else inspect.getdoc(model) or ""
        rows = []
        for column in table.columns:
            keys = ["primary key"] if column.primary_key else []
            keys += [f"→ `{key.target_fullname}`" for key in column.foreign_keys]
            keys += ["may be null"] if column.nullable else []
            meaning = fields[column.name].text if column.name in fields else _escaped(described.get(column.name, ""))
            rows.append((f"`{column.name}`", f"{column.type}", ", ".join(keys), meaning))
        parts += [f"## {table.name}", text, _table(("column", "type", "", ""), rows)]
        indexes = sorted(f"`({', '.join(column.name for column in index.columns)})`" for index in table.indexes)
        if indexes:
            parts.append(f"Indexes: {', '.join(indexes)}.")
    return _joined(parts)


# ------------------------------------------------------------------------------------------------------- Python


def python() -> str:
    parts = ["# Python", *_docstring(grader), "## grade", *_function(api.grade)]
    parts += [part for one in (api.Grader, GraderPool, Client, AsyncClient) for part in _class(one)]
    options = vars(api).get("GraderOptions")
    if options:
        rows = [(f"`{name}`", _code(field.type), field.text) for name, field in _fields(options).items() if field.text]
        parts += ["## GraderOptions", *_docstring(options), _table(("field", "type", ""), rows)]
    parts += ["## Work", *_documented_name(requests, "Work"), "## reward", *_function(rewards.reward)]
    parts += ["## feedback", *_function(feedback)]
    return _joined(parts)


def _function(function: Callable[..., object]) -> list[str]:
    return [*_signature(function.__name__, function), *_docstring(function)]


def _signature(name: str, function: Callable[..., object]) -> list[str]:
    """The signature as a code block with one parameter per line, annotations as written."""
    signature, lines = inspect.signature(function), []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in lines:
            lines.append("*")
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        lines.append(f"{stars}{parameter.name}: {parameter.annotation}{_default(parameter)}")
    returned = "" if function.__name__ == "__init__" else f" -> {signature.return_annotation}"
    prefix = "async " if inspect.isasyncgenfunction(function) or inspect.iscoroutinefunction(function) else ""
    inner = ", ".join(lines) if len(lines) < 2 else "\n    " + ",\n    ".join(lines) + ",\n"
    return [f"```python\n{prefix}{name}({inner}){returned}\n```"]


def _class(one: type) -> list[str]:
    """A section for a class, with its methods, inherited ones included."""
    name = one.__name__
    parts = [f"## {name}", *_docstring(one), *_signature(name, one.__init__), *_docstring(one.__init__)]
    methods = {key: method for base in reversed(one.__mro__) for key, method in vars(base).items()}
    for key, method in methods.items():
        if inspect.isfunction(method) and not key.startswith("_"):
            parts += [f"### {name}.{key}", *_function(method)]
    return parts


def _default(parameter: inspect.Parameter) -> str:
    """The default value as text; a model of defaults is written as a call without arguments."""
    if parameter.default is parameter.empty:
        return ""
    if isinstance(parameter.default, BaseModel):
        return f" = {type(parameter.default).__name__}()"
    return f" = {parameter.default!r}"


def _docstring(thing: object) -> list[str]:
    """The paragraphs of a docstring; consecutive indented paragraphs become one code block."""
    parts = []
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    for is_code, group in groupby(paragraphs, key=lambda text: text.startswith("    ")):
        text = "\n\n".join(group)
        parts.append(f"```python\n{dedent(text)}\n```" if is_code else text)
    return parts


# ------------------------------------------------------------------------------------------- reading the source


class _Documented(NamedTuple):
    """An attribute of a class: its annotation as written, and the docstring below it."""

    type: str
    text: str


def _fields(one: type) -> dict[str, _Documented]:
    """The documented attributes of a class, by name."""
    return _documented(sys.modules[one.__module__])[one.__name__]


def _documented(module: ModuleType) -> dict[str, dict[str, _Documented]]:
    """The documented attributes by class and name, from the source: they do not exist at run time."""
    tree = ast.parse(Path(inspect.getfile(module)).read_text())
    return {node.name: dict(_attributes(node)) for node in tree.body if isinstance(node, ast.ClassDef)}


def _attributes(node: ast.ClassDef) -> Iterator[tuple[str, _Documented]]:
    for statement, following in zip(node.body, [*node.body[1:], None], strict=True):
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                kind = ast.unparse(annotation)
            case ast.Assign(targets=[ast.Name(id=name)]):
                kind = ""
            case _:
                continue
        yield name, _Documented(kind, _escaped(_text_of(following)))


def _documented_name(module: ModuleType, name: str) -> list[str]:
    """The definition of a name in a module, and the docstring below it."""
    body = ast.parse(Path(inspect.getfile(module)).read_text()).body
    for statement, following in pairwise(body):
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == name:
            return [f"```python\n{ast.unparse(statement)}\n```", _text_of(following)]
    raise LookupError(name)


def _text_of(statement: ast.stmt | None) -> str:
    match statement:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return ""


# ----------------------------------------------------------------------------------------------------- Markdown


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(" ".join((cell or "").split()) for cell in line) + " |" for line in lines)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _escaped(text: str) -> str:
    """Escape `<`, `|`, `_` and `*` outside of backquotes."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([|_*])", r"\\\1", part).replace("<", "&lt;") for part in parts
    )


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    main()
