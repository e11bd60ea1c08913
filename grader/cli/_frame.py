"""The options that name a site and introduce it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grader.catalog.files import existing, read_source
from grader.errors import UserError, printable

if TYPE_CHECKING:
    from grader.report.site.pages import Frame

Title = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="The site's name, in place of 'Kernel report'.")
]
Introduction = Annotated[
    Path | None,
    typer.Option(
        "--intro", metavar="FILE", help="Plain text for the top of the first page; an empty line ends a paragraph."
    ),
]


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
