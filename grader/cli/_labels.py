"""The options that select by label, which every command with a board has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from db.labels import NOT_SOLUTIONS, LabelChoice
from grader.errors import UserError
from grader.verdict.labels import LABELS

Having = Annotated[
    list[str] | None,
    typer.Option(
        "--having",
        metavar="LABEL",
        help=f"Rank only submissions with this label: one of {', '.join(sorted(LABELS))}; may be repeated.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="LABEL", help="Leave out submissions with this label; may be repeated."),
]
Everything = Annotated[
    bool,
    typer.Option("--all", help=f"Rank also what boards leave out by default: {', '.join(NOT_SOLUTIONS)}."),
]


def label_choice(having: Sequence[str] | None, without: Sequence[str] | None, everything: bool) -> LabelChoice:
    """The choice that these options make. Raises UserError for an unknown label."""
    for name in (*(having or ()), *(without or ())):
        if name not in LABELS:
            raise UserError(f"unknown label {name!r}; the labels are {', '.join(sorted(LABELS))}")
    return LabelChoice.of(having or (), without or (), everything=everything)
