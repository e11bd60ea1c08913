"""Requests to a server, sent again while it is away or has no room.

It uses the standard library's HTTP client: a batch is one request, and its verdicts are one stream.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import closing
from email.utils import parsedate_to_datetime
from http.client import HTTPException
from typing import Any, TypeVar

from pydantic import ValidationError

from grader.errors import GraderError, UserError
from grader.verdict.value import Value

TIMEOUT_SECONDS = 60.0
"""Seconds to wait for an answer; a stream sends something every 15 s."""
_PAUSES = (0.1, 0.5, 1.0, 2.0, 5.0)
"""Seconds between tries; the last is repeated."""
_TRY_AGAIN = (429, 502, 503, 504)

T = TypeVar("T")
V = TypeVar("V", bound=Value)


class Patience:
    """The pauses between tries of one request, for so many seconds in all."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.renew()

    def renew(self) -> None:
        """Begin anew, as after an answer."""
        self._until, self._tries = time.monotonic() + self._seconds, 0

    def pause(self, fault: str, least: float = 0.0) -> None:
        """Wait for the next try, at least `least` seconds.

        Raises GraderError, which tells the fault, if that is too late.
        """
        wait = max(_PAUSES[min(self._tries, len(_PAUSES) - 1)], least)
        self._tries += 1
        if time.monotonic() + wait > self._until:
            raise GraderError(f"{fault}; tried for {self._seconds:g} s")
        time.sleep(wait)


class Connection:
    """A server's address with a token. Nothing is kept open between requests."""

    def __init__(self, address: str, token: str, patience_seconds: float) -> None:
        """`patience_seconds` is the time for new tries of one request."""
        self._address, self._token, self._patience = address.rstrip("/"), token, patience_seconds

    def answer(self, kind: type[V], *request: Any, timeout: float = TIMEOUT_SECONDS) -> V:
        """The answer to a request with the arguments of `open`. Raises UserError, GraderError."""

        def ask() -> V:
            with closing(self.open(*request, timeout=timeout)) as answer:
                return read(kind, answer.read())

        return self.patiently(ask)

    def open(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float = TIMEOUT_SECONDS,
    ) -> Any:
        """The response to one request, to read. Raises OSError, of which URLError is one."""
        sent = {"Authorization": f"Bearer {self._token}", **(headers or {})}
        request = urllib.request.Request(self._address + path, data=body, headers=sent, method=method)
        return urllib.request.urlopen(request, timeout=timeout)

    def patience(self) -> Patience:
        """The time for new tries of one request."""
        return Patience(self._patience)

    def patiently(self, ask: Callable[[], T]) -> T:
        """The answer, asked for again while the server is away or busy. Raises UserError, GraderError."""
        patience = self.patience()
        while True:
            after = 0.0
            try:
                return ask()
            except urllib.error.HTTPError as error:
                with closing(error):
                    detail = _detail(error)
                if error.code not in _TRY_AGAIN:
                    raise (GraderError if error.code >= 500 else UserError)(detail) from None
                after = _seconds(error.headers.get("Retry-After") or "")
            except (OSError, HTTPException) as error:  # among them URLError and a timeout
                detail = f"{self._address} does not answer ({getattr(error, 'reason', error)})"
            patience.pause(detail, after)


def read(kind: type[V], text: bytes) -> V:
    """A value that the server sent. Raises GraderError if it is of another version."""
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        raise GraderError(f"the server is of another version: {error.errors()[0]['msg']}; install the same") from error


def _seconds(retry_after: str) -> float:
    """The seconds to wait by a header Retry-After, which is a number or a date; 0 if it is neither."""
    try:
        return float(retry_after)
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(retry_after).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0


def _detail(error: urllib.error.HTTPError) -> str:
    """The server's sentence."""
    text = error.read(1 << 16).decode(errors="replace")
    try:
        return str(json.loads(text)["detail"])
    except (ValueError, TypeError, LookupError):
        return text.strip().partition("\n")[0] or f"HTTP status {error.code}"
