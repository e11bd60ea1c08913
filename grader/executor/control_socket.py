"""The referee's end of a control socket: sends and reads bytes, each before a deadline."""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Sequence


class SocketTimeout(Exception):
    """The deadline passed first."""


class SocketClosed(Exception):
    """The worker closed its end, or ended."""


class ControlSocket:
    """A non-blocking socket whose other end, `theirs`, is for the worker."""

    def __init__(self) -> None:
        self._socket, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._socket, selectors.EVENT_READ)
        self._socket.setblocking(False)

    def close(self) -> None:
        """Close this end. May be called twice."""
        self._selector.close()
        self._socket.close()

    def send(self, message: bytes, descriptors: Sequence[int], deadline: float) -> None:
        """Send a message with file descriptors. Raises SocketTimeout or SocketClosed."""
        sent = 0
        with selectors.DefaultSelector() as writable:
            writable.register(self._socket, selectors.EVENT_WRITE)
            while sent < len(message):
                if not writable.select(max(0.0, deadline - time.monotonic())):
                    raise SocketTimeout
                try:
                    if sent == 0 and descriptors:
                        sent = socket.send_fds(self._socket, [message], list(descriptors))
                    else:
                        sent += self._socket.send(message[sent:])
                except BlockingIOError:
                    continue
                except OSError:
                    raise SocketClosed from None

    def readable(self, seconds: float = 0.0) -> bool:
        """Wait for bytes or the end of the stream; return False if the time passes first."""
        return bool(self._selector.select(max(0.0, seconds)))

    def await_readable(self, deadline: float) -> None:
        """Wait as `readable` does. Raises SocketTimeout."""
        if not self.readable(deadline - time.monotonic()):
            raise SocketTimeout

    def has_byte(self) -> bool:
        """Read one byte of a readable socket; return False if it is closed instead."""
        try:
            return bool(self._socket.recv(1))
        except OSError:
            return False

    def read(self, count: int, deadline: float) -> bytes:
        """Read exactly `count` bytes. Raises SocketTimeout or SocketClosed."""
        chunks = bytearray()
        while len(chunks) < count:
            self.await_readable(deadline)
            try:
                chunk = self._socket.recv(min(count - len(chunks), 1 << 20))
            except BlockingIOError:
                continue
            except OSError:
                chunk = b""
            if not chunk:
                raise SocketClosed
            chunks += chunk
        return bytes(chunks)
