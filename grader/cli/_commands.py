"""The commands by name. A command's module is imported on first use, so that `grader --help` is fast."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import typer
from typer.core import TyperGroup

from grader.cli._ahead import start_ahead
from grader.errors import plainly
from grader.machine.collector import permanent

COMMANDS = {
    "grade": ("grade", "Grade submissions: Python files with a class ModelNew."),
    "init": ("init", "Write a problem and submissions for it, to start from."),
    "show": ("show", "Show a verdict in full, or as feedback for a model."),
    "profile": ("profile", "Show a submission beside its reference, kernel by kernel."),
    "leaderboard": ("show_leaderboard", "Rank stored verdicts by speedup, and their authors."),
    "diff": ("diff", "Compare two databases or runs: results, times and ranks."),
    "report": ("report", "Write a static site: status, leaderboards, each verdict."),
    "serve": ("serve", "Serve that site live, and grade what programs send."),
    "pool": ("app", "See what graders are doing: GPUs, rate, time left."),
    "cancel": ("cancel", "End gradings of an author, a batch or a run."),
    "export": ("export", "Write stored verdicts for other programs."),
    "problems": ("app", "List the problems, and whether they can be graded."),
    "doctor": ("doctor", "Show what this machine offers: GPU, compilers, sandbox."),
    "selftest": ("selftest", "Measure timing noise on this machine."),
}
"""By name: a function or typer application in the module of that name, and the first line of the command's help."""


class LazyGroup(TyperGroup):
    """Lists the commands without importing them."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.commands: Any = _Commands()

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = plainly(error.message)  # Typer passes on Pydantic's words
            raise

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if not ctx.resilient_parsing:  # as while a shell completes a word
            start_ahead(args)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


class _Commands(Mapping[str, Any]):
    """A command is imported when it is looked up."""

    def __getitem__(self, name: str) -> Any:
        attribute, _ = COMMANDS[name]
        with permanent():
            target = getattr(importlib.import_module(f"grader.cli.{name}"), attribute)
        if not isinstance(target, typer.Typer):
            function, target = target, typer.Typer(rich_markup_mode=None, add_completion=False)
            target.command()(function)
        command = typer.main.get_command(target)
        command.name = name
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)
