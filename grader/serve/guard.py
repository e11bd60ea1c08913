"""Checks every request and adds security headers to every response."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_PATH = 1024
"""Characters of a path. A page's has at most some hundred; Python makes no number of more than 4,300 digits."""

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


class TooLarge(HTTPException):
    """The body of a request is larger than allowed.

    FastAPI takes other exceptions from a body for faults in it.
    """

    def __init__(self, most_bytes: int) -> None:
        super().__init__(413, f"The request has more than {most_bytes} bytes; send less at once.")


class Guard:
    """ASGI middleware that checks Host and Origin headers and limits the size of bodies.

    The Host header must be an IP address or a known name. Another site can resolve its own name to this machine (DNS
    rebinding), but the browser then sends that name. A request that changes something must come from one of the
    server's own pages, or from a program.
    """

    def __init__(self, app: ASGIApp, *, hosts: Collection[str], most_bytes: Callable[[str], int]) -> None:
        """`most_bytes` returns the size of the largest body for a path."""
        self._app, self._hosts, self._most_bytes = app, {host.lower() for host in hosts}, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse the request, or pass it on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        headers = Headers(scope=scope)
        most_bytes = self._most_bytes(scope["path"])
        refused = self._why_not(scope["method"], scope["path"], headers, most_bytes)
        if refused:
            await refused(scope, receive, send_guarded)
            return
        await self._app(scope, self._limited(receive, most_bytes), send_guarded)

    def _why_not(self, method: str, path: str, headers: Headers, most_bytes: int) -> PlainTextResponse | None:
        if len(path) > MOST_PATH:
            return PlainTextResponse(f"the path has more than {MOST_PATH} characters\n", 414)
        if not self._knows(headers.get("host", "")):
            return PlainTextResponse("this host name is unknown to the server; add it with --allow-host\n", 421)
        if method not in ("GET", "HEAD") and _from_elsewhere(headers):
            return PlainTextResponse("requests from pages of another site are refused\n", 403)
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > most_bytes:
            return PlainTextResponse(f"the request has more than {most_bytes} bytes\n", 413)
        return None

    def _knows(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self._hosts
        return True

    @staticmethod
    def _limited(receive: Receive, most_bytes: int) -> Receive:
        seen = 0

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > most_bytes:
                raise TooLarge(most_bytes)
            return message

        return limited


def _from_elsewhere(headers: Headers) -> bool:
    """Whether the headers of a browser name another site; programs send neither header."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    try:
        return origin is not None and urlsplit(origin).netloc != headers.get("host")
    except ValueError:
        return True
