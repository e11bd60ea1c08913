"""Options of commands with boards and pages: labels and precision, the site's name and introduction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from db.labels import NOT_SOLUTIONS, LabelChoice
from grader.catalog.files import existing, read_source
from grader.errors import UserError, printable
from grader.verdict.labels import LABELS, LANGUAGES
from grader.verdict.precision import Precision

if TYPE_CHECKING:
    from grader.report.site.pages import Frame

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


Title = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="The site's name, in place of 'Kernel report'.")
]
Introduction = Annotated[
    Path | None,
    typer.Option(
        "--intro", metavar="FILE", help="Plain text for the top of the first page; an empty line ends a paragraph."
    ),
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


def site_frame(title: str | None, introduction: Path | None, **server: Any) -> Frame:
    """The pages' frame; `server` has the fields that a server sets.

    Raises UserError for a file that cannot be read.
    """
    from grader.report.site.pages import TITLE, Frame

    text, unreadable = read_source(existing(introduction)) if introduction else ("", None)
    if introduction and unreadable:
        raise UserError(f"{printable(introduction)}: cannot introduce the site: {unreadable}")
    paragraphs = tuple(" ".join(part.split()) for part in text.split("\n\n") if part.strip())
    return Frame(title=(title or "").strip() or TITLE, introduction=paragraphs, **server)
