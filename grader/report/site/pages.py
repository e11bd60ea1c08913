"""Templates to pages. Everything that a template prints is cleaned and escaped; what may run on a page is its own
style sheet and script, named by their hashes in the page's security policy."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from grader.codes import CODES
from grader.report.console import clean
from grader.report.site import formats, names


def render(template: str, page: str, title: str, **values: object) -> str:
    """A whole page; `page` is where it will lie, so that links in it lead there from its folder."""
    up = "../" * page.count("/")
    return _environment().get_template(template).render(up=up, page=page, title=title, **values)


def save(path: Path, text: str) -> None:
    """Write a page. Half a surrogate pair becomes a question mark: UTF-8 has no bytes for it."""
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
    style, script = _asset("site.css"), _asset("site.js")
    environment.globals.update(
        style=Markup(style),
        script=Markup(script),
        policy=f"default-src 'none'; style-src {_source(style)}; script-src {_source(script)}; "
        "base-uri 'none'; form-action 'none'",
        codes=CODES,
        names=names,
        fmt=formats,
    )
    return environment


def _asset(name: str) -> str:
    return files("grader.report.site").joinpath("static", name).read_text(encoding="utf-8")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
