"""Reads JSONL from a file or a pipe: lines as they arrive, without waiting for more than there is."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from grader.catalog.requests import MAX_LINE_BYTES, Pair, RequestReader
from grader.errors import UserError
from grader.verdict.models import Problem

STDIN = Path("-")
_CHUNK_BYTES = 1 << 16


def arriving(stream: Path) -> Iterator[tuple[str, Iterator[tuple[int, bytes]]]]:
    """Yields (stream name, batch of numbered lines) as lines arrive, until the end. Raises UserError."""
    name = "stdin" if stream == STDIN else str(stream)
    try:
        with open(0 if stream == STDIN else stream, "rb", buffering=0, closefd=stream != STDIN) as file:
            for lines in LineReader(file.fileno(), MAX_LINE_BYTES).batches():
                yield name, lines
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from error


def readable(
    lines: Iterable[tuple[int, bytes]],
    name: str,
    reader: RequestReader,
    overrides: Mapping[str, str],
    check_variant: Callable[[Problem], None],
    refuse: Callable[[str], None],
) -> Iterator[Pair]:
    """The problem and submission of each line; `refuse` gets a message for each that cannot be graded."""
    for number, line in lines:
        try:
            problem, submission = reader.from_json(line, overrides)
            check_variant(problem)
        except UserError as error:
            refuse(f"{name}, line {number}: {error}")
        else:
            yield problem, submission


class LineReader:
    """Reads a file descriptor by lines, numbered from 1. A longer line is cut after `max_bytes` + 1."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self._descriptor, self._max_bytes = descriptor, max_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._ended = False
        self._number = 0

    def batches(self) -> Iterator[Iterator[tuple[int, bytes]]]:
        """Yields batches of lines; a batch waits for its first line only.

        Consume each batch before requesting the next.
        """
        while (first := self._next(wait=True)) is not None:
            yield self._arrived(first)

    def _arrived(self, first: tuple[int, bytes]) -> Iterator[tuple[int, bytes]]:
        line: tuple[int, bytes] | None = first
        while line is not None:
            yield line
            line = self._next(wait=False)

    def _next(self, *, wait: bool) -> tuple[int, bytes] | None:
        """The next line that is not blank; None at the end and, without `wait`, if no whole line has arrived."""
        while True:
            line = self._whole_line()
            if line is None and self._ended:
                return None
            if line is None:
                if not wait and not select.select([self._descriptor], [], [], 0)[0]:
                    return None
                self._read()
            elif line.strip():
                return self._number, line

    def _whole_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", self._searched)
        if end < 0 and self._ended and self._buffer:
            end = len(self._buffer)
        if end < 0:
            self._searched = len(self._buffer)
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        self._number += 1
        return line

    def _read(self) -> None:
        chunk = os.read(self._descriptor, _CHUNK_BYTES)
        self._ended = not chunk
        if len(self._buffer) > self._max_bytes:
            chunk = chunk[end:] if (end := chunk.find(b"\n")) >= 0 else b""
        self._buffer += chunk
