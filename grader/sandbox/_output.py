"""Keeps the head and the tail of a stream, whatever its length."""

import threading

from grader.sandbox._values import Output


class HeadAndTail:
    """A first quarter and three last quarters of `limit_bytes`: a compiler's first error, a traceback's last line."""

    def __init__(self, limit_bytes: int) -> None:
        self._head_bytes = limit_bytes // 4
        self._tail_bytes = limit_bytes - self._head_bytes
        self._head = bytearray()
        self._tail = bytearray()
        self._total_bytes = 0
        self._lock = threading.Lock()

    def add(self, chunk: bytes) -> None:
        with self._lock:
            self._total_bytes += len(chunk)
            room = self._head_bytes - len(self._head)
            self._head += chunk[:room]
            self._tail += chunk[room:]
            if len(self._tail) > 2 * self._tail_bytes + (1 << 16):
                del self._tail[: len(self._tail) - self._tail_bytes]

    def output(self) -> Output:
        with self._lock:
            tail = self._tail[max(0, len(self._tail) - self._tail_bytes) :]
            left_out = self._total_bytes - len(self._head) - len(tail)
            gap = f"\n[{left_out} bytes left out]\n".encode() if left_out else b""
            text = (bytes(self._head) + gap + bytes(tail)).decode(errors="replace")
            return Output(text=text, total_bytes=self._total_bytes)
