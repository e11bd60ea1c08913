"""Renders templates into pages.

All values printed by a template are cleaned and escaped. The page's security policy allows only its own style sheet
and script, by their hashes.
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grader.report.console import clean, device_text
from grader.report.site import formats, names
from grader.verdict.codes import CODES

TITLE = "Kernel report"


@dataclass(frozen=True)
class Frame:
    """The navigation on every page; a static site has no links that need a server."""

    links: tuple[tuple[str, str], ...] = ()
    """More pages in the navigation: (path, name)."""
    compares: bool = False
    """Whether the pages link to what only a server has: comparisons of any two submissions, and filtered lists."""
    title: str = TITLE
    """The site's name, on every page and as the first page's heading."""
    introduction: tuple[str, ...] = ()
    """Paragraphs below the first page's heading."""


STATIC = Frame()


def render(template: str, page: str, title: str, *, frame: Frame = STATIC, policy: str = "", **values: object) -> str:
    """A complete page. `page` is its path in the site; its links are relative to this."""
    up = "../" * page.count("/")
    if frame.title not in (TITLE, title):
        title = f"{title} · {frame.title}"
    around = {"up": up, "page": page, "title": title, "frame": frame, "policy": policy or security_policy()}
    return _environment().get_template(template).render(**around, **values)


def fragment(template: str, macro: str, *arguments: object) -> str:
    """The output of one macro of a template, escaped as in a page."""
    made = getattr(_environment().get_template(template).module, macro)(*arguments)
    return str(made)


@cache
def security_policy(*, connect: str = "'none'", form: str = "'none'") -> str:
    """The Content-Security-Policy of a page: only its style sheet and script, by their hashes."""
    style, script = _asset("site.css"), _asset("site.js")
    return (
        f"default-src 'none'; img-src data:; style-src {_source(style)}; script-src {_source(script)}; "
        f"connect-src {connect}; base-uri 'none'; form-action {form}"
    )


def save(path: Path, text: str) -> None:
    """Write a page in UTF-8; lone surrogates become question marks."""
    path.write_bytes(text.encode("utf-8", errors="replace"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("grader.report.site", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.globals.update(
        style=Markup(_asset("site.css")),
        script=Markup(_asset("site.js")),
        icon=Markup(f"data:image/svg+xml;base64,{base64.b64encode(_asset('icon.svg').encode()).decode()}"),
        codes=CODES,
        names=names,
        fmt=formats,
        device_text=device_text,
    )
    return environment


@cache
def _asset(name: str) -> str:
    return files("grader.report.site").joinpath("static", name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
