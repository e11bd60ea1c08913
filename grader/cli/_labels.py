"""The options that select by label and precision, which every command with a board has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from db.labels import NOT_SOLUTIONS, LabelChoice
from grader.errors import UserError
from grader.verdict.labels import LABELS, LANGUAGES
from grader.verdict.precision import Precision

Having = Annotated[
    list[str] | None,
    typer.Option(
        "--having",
        metavar="LABEL",
        help="Rank only submissions with this label, a language or one of "
        f"{', '.join(sorted(LABELS.keys() - LANGUAGES.keys()))}; may be repeated.",
    ),
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", metavar="LABEL", help="Leave out submissions with this label; may be repeated."),
]
Languages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        metavar="NAME",
        help=f"Rank only submissions in this language: one of {', '.join(LANGUAGES)}; repeated, only those in all.",
    ),
]
Everything = Annotated[
    bool,
    typer.Option("--all", help=f"Rank also what boards leave out by default: {', '.join(NOT_SOLUTIONS)}."),
]


OfPrecision = Annotated[
    Precision, typer.Option("--precision", help="Rank only what was graded in this precision; they are never mixed.")
]


def label_choice(
    having: Sequence[str] | None,
    without: Sequence[str] | None,
    languages: Sequence[str] | None,
    everything: bool,
    precision: Precision,
) -> LabelChoice:
    """The choice that these options make. Raises UserError for an unknown label or language."""
    for name in languages or ():
        if name not in LANGUAGES:
            raise UserError(f"unknown language {name!r}; the languages are {', '.join(LANGUAGES)}")
    for name in (*(having or ()), *(without or ())):
        if name not in LABELS:
            known = f"the labels are {', '.join(sorted(LABELS.keys() - LANGUAGES.keys()))}"
            raise UserError(f"unknown label {name!r}; {known}, and the languages {', '.join(LANGUAGES)}")
    return LabelChoice.of(
        [*(having or ()), *(languages or ())], without or (), everything=everything, precision=precision
    )
