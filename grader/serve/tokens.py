"""Tokens, each of an author, and how often each may be used."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.errors import UserError, printable

TOKEN_VARIABLE = "GRADER_TOKEN"
NAME_PATTERN = r"[A-Za-z0-9][A-Za-z0-9._\-]*"
"""Allowed names of authors and labels."""
MOST_NAME = 64
SHORTEST_TOKEN = 16
MOST_TOKEN = 1024
"""Characters of a token that are looked at."""

_NAME = re.compile(NAME_PATTERN)


@dataclass(frozen=True)
class Owner:
    """The author of a token, or the server itself."""

    name: str
    author: str | None
    """The author of all that is sent with it; None: any author."""
    most_priority: int
    """The highest priority that it may ask for."""


ANYONE = Owner("*", None, 100)
"""The owner of the server's own token, which may name any author."""


class Tokens:
    """The tokens that a server knows."""

    def __init__(self, own: str, by_author: Mapping[str, str]) -> None:
        """`own` is the server's token; `by_author` has the token of each author."""
        owners = {own: ANYONE, **{token: Owner(name, name, 0) for name, token in by_author.items()}}
        self._known = [(_digest(token), owner) for token, owner in owners.items()]

    def owner(self, header: str) -> Owner | None:
        """The owner of `Bearer TOKEN`; takes the same time for every wrong one."""
        given = _digest(header.removeprefix("Bearer ")[:MOST_TOKEN])
        found = None
        for known, owner in self._known:
            if hmac.compare_digest(given, known):
                found = owner
        return found


class Rate:
    """Requests a minute of each owner; a pause earns some in advance, up to those of a minute."""

    def __init__(self, a_minute: int) -> None:
        self._a_minute = a_minute
        self._left: dict[str, tuple[float, float]] = {}
        """By owner: the requests that were left, and the time of that count."""
        self._lock = threading.Lock()

    def wait_seconds(self, owner: Owner) -> float:
        """Count a request; 0, or the seconds to wait because there were too many."""
        with self._lock:
            now = time.monotonic()
            left, since = self._left.get(owner.name, (float(self._a_minute), now))
            left = min(float(self._a_minute), left + (now - since) * self._a_minute / 60)
            allowed = left >= 1
            self._left[owner.name] = (left - 1 if allowed else left, now)
            return 0.0 if allowed else (1 - left) * 60 / self._a_minute


def valid_name(name: str) -> bool:
    """Whether an author or label may be called so."""
    return len(name) <= MOST_NAME and _NAME.fullmatch(name) is not None


def names_fault(what: str, name: str) -> str:
    """Why the name of an author or label is refused."""
    return f"{what} {name[:MOST_NAME]!r}: use up to {MOST_NAME} letters, digits, '.', '_' or '-'"


def own_token() -> str:
    """The server's own token, from the environment or made now. Raises UserError for a short one."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None and len(given) < SHORTEST_TOKEN:
        raise UserError(f"{TOKEN_VARIABLE} has {len(given)} characters; use at least {SHORTEST_TOKEN}, or unset it")
    return given or secrets.token_urlsafe(24)


def read_tokens(path: Path | None) -> dict[str, str]:
    """Tokens by author, from a file with `AUTHOR TOKEN` on each line. Raises UserError."""
    if path is None:
        return {}
    where = printable(path)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"{where}: cannot be read ({getattr(error, 'strerror', 'no UTF-8')}); name a file of `AUTHOR TOKEN` lines"
        ) from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        words: Sequence[str] = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != 2:
            raise UserError(f"{where}, line {number}: write AUTHOR TOKEN")
        author, token = words
        if not valid_name(author):
            raise UserError(f"{where}, line {number}: {names_fault('author', author)}")
        if len(token) < SHORTEST_TOKEN:
            raise UserError(
                f"{where}, line {number}: the token has {len(token)} characters; use at least {SHORTEST_TOKEN}"
            )
        if author in found or token in found.values():
            raise UserError(f"{where}, line {number}: {author} or its token is there twice; leave one out")
        found[author] = token
    return found


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()
