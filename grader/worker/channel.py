"""The worker's end of the control socket: jobs and their descriptors in, evidence out."""

from __future__ import annotations

import array
import socket

from grader.protocol import HEADER, MAX_JOB_BYTES, Evidence, Job, decode_job, encode

MAX_DESCRIPTORS = 8
"""Most file descriptors that come with one message."""


class Channel:
    """Owns the socket."""

    def __init__(self, descriptor: int) -> None:
        self._socket = socket.socket(fileno=descriptor)

    def receive(self) -> tuple[Job, list[int]] | None:
        """Return the next job and its descriptors; None when the referee has closed the socket.

        Raises ValueError for a job that is too long or malformed.
        """
        descriptors: list[int] = []
        header = self._read(HEADER.size, descriptors)
        if header is None:
            return None
        (length,) = HEADER.unpack(header)
        if length > MAX_JOB_BYTES:
            raise ValueError(f"a job of {length} bytes")
        body = self._read(length, descriptors)
        return None if body is None else (decode_job(body), descriptors)

    def send(self, evidence: Evidence) -> None:
        """Send the evidence of one job."""
        self._socket.sendall(encode(evidence))

    def _read(self, count: int, descriptors: list[int]) -> bytes | None:
        chunks = bytearray()
        while len(chunks) < count:
            space = socket.CMSG_SPACE(MAX_DESCRIPTORS * array.array("i").itemsize)
            chunk, ancillary, _, _ = self._socket.recvmsg(count - len(chunks), space)
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                    received = array.array("i")
                    received.frombytes(data[: len(data) - len(data) % received.itemsize])
                    descriptors.extend(received)
            if not chunk:
                return None
            chunks += chunk
        return bytes(chunks)
