"""The documentation's reference pages, made from the code: commands, verdict, statuses and codes, database, Python.

A hook of mkdocs; the texts themselves need neither mkdocs nor a network.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
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
from grader.verdict import models, rewards, stages
from grader.verdict.codes import CODES
from grader.verdict.columns import COLUMNS
from grader.verdict.labels import LABELS


def pages() -> dict[str, str]:
    """Path below docs/ to text."""
    return {
        "reference/cli.md": command_line(),
        "reference/verdict.md": verdict(),
        "reference/verdict.schema.json": json.dumps(models.Verdict.model_json_schema(mode="serialization"), indent=2),
        "reference/statuses.md": statuses(),
        "reference/database.md": database(),
        "reference/python.md": python(),
    }


def on_files(files: Any, config: Any) -> Any:
    """Called by mkdocs, which is told of the pages as if they were files."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


# ------------------------------------------------------------------------------------------------- command line


def commands() -> Iterator[tuple[str, Any]]:
    """`grade`, `problems add`, ... with their commands."""

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
    docs = _documented(models) | _documented(stages)
    parts = [
        "# A verdict",
        "What `grader grade --json` and `grader show ID --json` print, what the database keeps, and what `grade()` "
        f"returns as an object. `schema_version` is {models.SCHEMA_VERSION}. The same as a JSON schema: "
        "[verdict.schema.json](verdict.schema.json).",
        *(inspect.getdoc(models) or "").split("\n\n")[1:],
    ]
    for model in described:
        fields = docs[model.__name__]
        rows = [(f"`{name}`", _linked(fields[name].type, described), fields[name].text) for name in model.model_fields]
        parts += [
            f"## {model.__name__}",
            _escaped(inspect.cleandoc(vars(model).get("__doc__") or "")),
            _table(("field", "type", ""), rows),
        ]
    return _joined(parts)


def _reachable(model: type[BaseModel]) -> list[type[BaseModel]]:
    """The model and those that its fields are made of, in that order."""
    found = [model]
    known = vars(stages) | vars(models)
    names = {name: one for name, one in known.items() if inspect.isclass(one) and issubclass(one, BaseModel)}
    docs = _documented(models) | _documented(stages)
    for one in found:
        for field in docs[one.__name__].values():
            inner = [names[word] for word in re.findall(r"\w+", field.type) if word in names]
            found += [other for other in inner if other not in found]
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
    docs = _documented(models) | _documented(stages)
    by_stage = {stage: [name for name, code in CODES.items() if code.stage == stage] for stage in _stages()}
    parts = [
        "# Statuses, codes and labels",
        "## Status of a verdict",
        _escaped(inspect.getdoc(models.Status) or ""),
        _table(("status", ""), [(f"`{one}`", docs["Status"][one.name].text) for one in models.Status]),
        "## Status of a stage",
        _table(("status", ""), [(f"`{one}`", docs["StageStatus"][one.name].text) for one in stages.StageStatus]),
        "## Diagnosis codes",
        "A verdict's `diagnoses` say what to change, errors first, the cause before what follows from it. Codes are "
        "stable; messages carry the subject, the numbers and the remedy, and may change.",
    ]
    for stage, names in by_stage.items():
        rows = [(f"`{name}`", _escaped(CODES[name].meaning), _escaped(CODES[name].remedy)) for name in names]
        parts += [f"### {stage}", _table(("code", "meaning", "remedy"), rows)]
    parts += [
        "## Labels",
        "What informs and does not reject, read off the submission's text.",
        _table(("label", ""), [(f"`{name}`", _escaped(text)) for name, text in LABELS.items()]),
    ]
    return _joined(parts)


def _stages() -> list[str]:
    return list(dict.fromkeys(code.stage for code in CODES.values()))


# ----------------------------------------------------------------------------------------------------- database


def database() -> str:
    docs = _documented(db.tables)
    by_table = {one.__tablename__: one for one in vars(db.tables).values() if hasattr(one, "__tablename__")}
    parts = ["# Database", *(inspect.getdoc(db.tables) or "").split("\n\n")]
    columns = {column.name: column.description for column in COLUMNS}
    for table in SQLModel.metadata.sorted_tables:
        model = by_table.get(table.name)  # verdicts are made from the table of columns
        rows = []
        for column in table.columns:
            keys = ["primary key"] if column.primary_key else []
            keys += [f"→ `{key.target_fullname}`" for key in column.foreign_keys]
            keys += ["may be null"] if column.nullable else []
            described = docs[model.__name__].get(column.name) if model else None
            text = described.text if described else "" if model else _escaped(columns.get(column.name, ""))
            rows.append((f"`{column.name}`", f"{column.type}", ", ".join(keys), text))
        about = inspect.getdoc(model) if model else "One verdict per row. `document` is the whole of it in JSON."
        parts += [f"## {table.name}", about or "", _table(("column", "type", "", ""), rows)]
        indexes = sorted(f"`({', '.join(column.name for column in index.columns)})`" for index in table.indexes)
        if indexes:
            parts.append(f"Indexes: {', '.join(indexes)}.")
    return _joined(parts)


# ------------------------------------------------------------------------------------------------------- Python


def python() -> str:
    parts = ["# Python", *_docstring(grader), "## grade", *_function(api.grade), "## Grader", *_docstring(api.Grader)]
    parts += _signature("Grader", api.Grader.__init__) + _docstring(api.Grader.__init__)
    for name, method in vars(api.Grader).items():
        if not name.startswith("_"):
            parts += [f"### Grader.{name}", *_function(method)]
    parts += ["## Work", *_documented_name(requests, "Work"), "## reward", *_function(rewards.reward)]
    return _joined(parts)


def _function(function: Callable[..., object]) -> list[str]:
    return [*_signature(function.__name__, function), *_docstring(function)]


def _signature(name: str, function: Callable[..., object]) -> list[str]:
    """One parameter a line; annotations are text, as they stand in the source."""
    signature, lines = inspect.signature(function), []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in lines:
            lines.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"{parameter.name}: {parameter.annotation}{default}")
    returned = "" if function.__name__ == "__init__" else f" -> {signature.return_annotation}"
    prefix = "async " if inspect.isasyncgenfunction(function) else ""
    inner = ", ".join(lines) if len(lines) < 2 else "\n    " + ",\n    ".join(lines) + ",\n"
    return [f"```python\n{prefix}{name}({inner}){returned}\n```"]


def _docstring(thing: object) -> list[str]:
    """Indented paragraphs are code; those in a row are one block."""
    parts = []
    paragraphs = (inspect.getdoc(thing) or "").split("\n\n")
    for is_code, group in groupby(paragraphs, key=lambda text: text.startswith("    ")):
        text = "\n\n".join(group)
        parts.append(f"```python\n{dedent(text)}\n```" if is_code else text)
    return parts


# ------------------------------------------------------------------------------------------- reading the source


class _Documented(NamedTuple):
    """A class's attribute: its annotation as written, and the string that stands below it."""

    type: str
    text: str


def _documented(module: ModuleType) -> dict[str, dict[str, _Documented]]:
    """By class and attribute. The attributes' docstrings are not there at run time."""
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
    """The definition of a module's name, and what stands below it."""
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
    """`<` begins no tag, `|` ends no cell, `_` and `*` are no emphasis; in backquotes all is literal anyway."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(
        part if part.startswith("`") else re.sub(r"([|_*])", r"\\\1", part).replace("<", "&lt;") for part in parts
    )


def _joined(parts: Sequence[str]) -> str:
    return "\n\n".join(part for part in parts if part) + "\n"
