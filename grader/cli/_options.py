"""Options that several commands share; those of a grading are made from the fields of `GraderOptions`."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from grader.options import AUTO, GraderOptions, device_choices, flag
from grader.report.listing import ListFormat
from grader.verdict.models import Device

DATABASE = "grader.db"

ProblemFolders = Annotated[
    list[Path] | None,
    typer.Option("--problems", metavar="DIR", help="Also offer the problems in this folder; may be repeated."),
]
Database = Annotated[str, typer.Option("--db", metavar="PATH|URL", help="Where verdicts are stored.")]
AnyDevice = Annotated[
    str, typer.Option("--device", metavar="|".join(device_choices()), help="auto: every device.", show_default=False)
]
ListFormatOption = Annotated[
    ListFormat | None,
    typer.Option(
        "--format",
        help="By default a table on a terminal, else plain: cells between tabs. json: one object per line.",
    ),
]
ShortForJson = Annotated[bool, typer.Option("--json", help="Short for --format json.")]
_METAVARS = {"variant": "NAME", "build_cache": "DIR", "device_index": "N", "seconds": "N"}


class Format(StrEnum):
    """Output formats of a leaderboard."""

    TABLE = "table"
    PLAIN = "plain"
    JSON = "json"
    CSV = "csv"
    MD = "md"


class BoardChoice(StrEnum):
    """Names of the boards; see `db.leaderboard.Board`."""

    TOTAL = "total"
    FORWARD = "forward"
    STRICT_FP32 = "strict-fp32"
    CPU = "cpu"


class AgainstChoice(StrEnum):
    """The baseline of a board's speedups; see `db.leaderboard.Against`."""

    EAGER = "eager"
    COMPILE = "compile"


def device_of(choice: str) -> Device | None:
    """None for `auto`. Raises UserError for an unknown device."""
    chosen = GraderOptions().replace(device=choice).device
    return None if chosen == AUTO else Device(chosen)


def takes_grader_options(names: Sequence[str]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each of these fields; the command gets them together as `options`."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            chosen = {name: _plain(arguments.pop(name)) for name in names}
            command(options=GraderOptions().replace(**chosen), **arguments)

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "options":
                parameters += [_parameter(name, GraderOptions.model_fields[name]) for name in names]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del run.__wrapped__  # whose signature would be read instead
        return run

    return decorate


def _choices(name: str, values: Sequence[str]) -> Any:
    """An enumeration, which every version of typer offers as choices."""
    return cast(Any, StrEnum)(name, [(value.upper(), value) for value in values])


def _parameter(name: str, field: FieldInfo) -> inspect.Parameter:
    annotation: Any = field.annotation
    default, values = field.default, get_args(annotation) if get_origin(annotation) is Literal else ()
    if name == "device":
        values = device_choices()
    if values:
        annotation = _choices(name, values)
        default = annotation(default)
    help_text = " ".join((field.description or "").split())
    option = typer.Option(flag(name), help=help_text, metavar=_METAVARS.get(name))
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option]
    )


def _plain(value: object) -> object:
    return value.value if isinstance(value, StrEnum) else value
