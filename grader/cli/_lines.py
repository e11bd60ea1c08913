"""Reads JSONL from a file or a pipe: lines as they arrive, without waiting for more than there is."""

from __future__ import annotations

import os
import select
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from grader.catalog.requests import MAX_LINE_BYTES, Pair, RequestReader
from grader.errors import UserError
from grader.pool.fair import FairQueue
from grader.verdict.models import Problem

STDIN = Path("-")
_CHUNK_BYTES = 1 << 16
_LONGEST_MESSAGE = 1000
"""Characters of why a line is refused, which may quote a field of megabytes."""
MOST_AHEAD = 256
"""Lines that are read ahead, among which authors take turns. A choice."""
MOST_AHEAD_BYTES = 16 << 20
"""Bytes of them after which no more are read ahead. A choice."""

MOST_COUNTED_BYTES = 256 << 20
"""Bytes of files whose lines are counted before they are graded, which takes less than a second. A choice."""

Read = Callable[[str, int, bytes], Pair | None]
"""Makes a line of a stream, by its number, its problem and submission; None if it cannot be graded."""


def arriving(stream: Path, read: Read) -> Iterator[Iterator[Pair]]:
    """Yields what has arrived, a batch at a time, until the end; a batch waits for its first line only.

    Among the lines that have arrived, authors take turns. Raises UserError for a stream that cannot be read.
    """
    name = "stdin" if stream == STDIN else str(stream)
    try:
        with open(0 if stream == STDIN else stream, "rb", buffering=0, closefd=stream != STDIN) as file:
            turns = _Turns(LineReader(file.fileno(), MAX_LINE_BYTES), lambda number, line: read(name, number, line))
            while turns.wait():
                yield turns.arrived()
    except OSError as error:
        raise UserError(f"{name}: cannot be read ({error.strerror})") from error


def count_lines(streams: Iterable[Path]) -> int | None:
    """Lines in these files that are not blank; None for a pipe, and if counting takes long.

    Raises UserError for a file that cannot be read.
    """
    count, left = 0, MOST_COUNTED_BYTES
    for stream in streams:
        if stream == STDIN or not stream.is_file() or (left := left - stream.stat().st_size) < 0:
            return None
        try:
            with stream.open("rb") as file:
                count += sum(not line.isspace() for line in file)
        except OSError as error:
            raise UserError(f"{stream}: cannot be read ({error.strerror})") from error
    return count


def reader_of_lines(
    reader: RequestReader,
    overrides: Mapping[str, str],
    check_variant: Callable[[Problem], None],
    refuse: Callable[[str], None],
) -> Read:
    """Makes a line its problem and submission; `refuse` gets a message for each that cannot be graded."""

    def read(name: str, number: int, line: bytes) -> Pair | None:
        try:
            problem, submission = reader.from_json(line, overrides)
            check_variant(problem)
        except UserError as error:
            refuse(f"{name}, line {number}: {str(error)[:_LONGEST_MESSAGE]}")
            return None
        return problem, submission

    return read


class _Turns:
    """Lines that are read a bounded number ahead, so that one author's many do not keep another's few waiting."""

    def __init__(self, lines: LineReader, read: Callable[[int, bytes], Pair | None]) -> None:
        self._lines, self._read = lines, read
        self._ahead = FairQueue[tuple[Pair, int]]()
        self._bytes = 0

    def wait(self) -> bool:
        """Whether there is another line; waits until one has arrived."""
        self._fill(wait=True)
        return bool(self._ahead)

    def arrived(self) -> Iterator[Pair]:
        """The lines that have arrived; does not wait for more."""
        while (taken := self._ahead.take()) is not None:
            pair, size = taken
            self._bytes -= size
            yield pair
            self._fill(wait=False)

    def _fill(self, *, wait: bool) -> None:
        while len(self._ahead) < MOST_AHEAD and self._bytes < MOST_AHEAD_BYTES:
            line = self._lines.next(wait=wait and not self._ahead)
            if line is None:
                return
            if (pair := self._read(*line)) is not None:
                self._ahead.put((pair, len(line[1])), pair[1].author)
                self._bytes += len(line[1])


class LineReader:
    """Reads a file descriptor by lines, numbered from 1. A longer line is cut after `max_bytes` + 1."""

    def __init__(self, descriptor: int, max_bytes: int) -> None:
        self._descriptor, self._max_bytes = descriptor, max_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._ended = False
        self._number = 0

    def next(self, *, wait: bool) -> tuple[int, bytes] | None:
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
