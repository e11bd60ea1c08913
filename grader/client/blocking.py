"""Grades on a server from Python, over HTTP, without torch and without a GPU."""

from __future__ import annotations

import json
import logging
import os
import secrets
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import closing
from http.client import HTTPException
from pathlib import Path
from typing import Any

from grader.api import GradesMany
from grader.catalog.requests import Request, Work
from grader.client.connection import Connection, read
from grader.errors import NotGraded, UserError
from grader.verdict.batch_state import BatchState
from grader.verdict.models import Problem, Submission, Verdict
from grader.verdict.profiles import Profile
from grader.verdict.value import Value

LINES_AT_ONCE = 256
"""Lines that `grade_many` sends in one batch. A choice: the answer to a batch costs milliseconds."""
BYTES_AT_ONCE = 4 << 20
"""Bytes of such a batch, unless one line has more."""
MOST_BYTES = 16 << 20
"""Bytes of one batch that a server takes."""
PATIENCE_SECONDS = 600.0
"""Seconds of new tries at a server that does not answer, or has no room: it may be restarting."""
PROFILE_SECONDS = 1800.0
"""Seconds to wait for a profile, which comes after what is being graded."""

log = logging.getLogger(__name__)


class Line(Value):
    """A line of a batch that has ended, with a verdict or with a message."""

    line: int
    """Its number in the batch, from 1."""
    ended: int
    """Its place in the order in which the lines ended, from 1."""
    verdict: Verdict | None = None
    message: str | None = None


class Client(GradesMany):
    """A server's grader. A context manager; any thread may call it.

        with Client("http://192.0.2.1:8000", token) as client:
            for verdict in client.grade_many(work):
                ...

    A request that fails because the server restarts, or has no room, is sent again; it is graded once all the same.
    """

    def __init__(
        self,
        address: str,
        token: str | None = None,
        *,
        author: str | None = None,
        priority: int = 0,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`token` is by default in the environment variable GRADER_TOKEN; `author` is that of work without one."""
        token = token if token is not None else os.environ.get("GRADER_TOKEN", "")
        self._server = Connection(address, token, patience_seconds)
        self._author, self._priority = author, priority

    def close(self) -> None:
        """Nothing is kept open."""

    def grade(
        self,
        path: str | Path | None = None,
        *,
        source: str | None = None,
        problem: str | Problem | None = None,
        **names: Any,
    ) -> Verdict:
        """Grade one file or source for a problem of the server; `names` are `author`, `label` and `sample`.

        Raises UserError for what the server refuses, NotGraded for what ends without a verdict, GraderError if the
        server is away.
        """
        if (path is None) == (source is None) or problem is None:
            raise UserError("give either the submission's path or its source, and the problem's id")
        text = source if path is None else Path(path).read_text(encoding="utf-8")
        (line,) = self._ended([{"problem": problem, "source": text, **names}])
        if line.verdict is None:
            raise NotGraded(str(line.message))
        return line.verdict

    def grade_many(self, work: Iterable[Work | Request]) -> Generator[Verdict, None, None]:
        """Yields verdicts, each as it is reached. Raises UserError for what the server refuses.

        What is cancelled, or takes longer than the server's limit, is logged and left out. `work` is read in parts of
        256 or of 4 MiB, each sent when the verdicts on the one before are read. Left early, what the server has not
        graded is cancelled.
        """
        with closing(self._ended(work)) as ended:
            for line in ended:
                if line.verdict is None:
                    log.warning("line %d has no verdict: %s", line.line, line.message)
                else:
                    yield line.verdict

    def profile(self, work: Work | Request) -> Profile:
        """`Grader.profile`, for a problem of the server, which stores it.

        Raises UserError for what the server refuses or cannot profile, GraderError if the server is away.
        """
        return self._server.answer(Profile, "POST", "/api/profiles", self._line(work), timeout=PROFILE_SECONDS)

    def submit(
        self, work: Iterable[Work | Request], *, key: str | None = None, priority: int | None = None
    ) -> BatchState:
        """Send a batch, of at most 10,000 lines and 16 MiB; a key that was sent before returns that batch.

        Raises UserError for what the server refuses.
        """
        body = b"".join(map(self._line, work))
        if len(body) > MOST_BYTES:
            raise UserError(f"the batch has {len(body)} bytes; a server takes {MOST_BYTES}, so send it in parts")
        wanted = self._priority if priority is None else priority
        return self._send(body, key or secrets.token_urlsafe(16), wanted)

    def state(self, batch_id: str) -> BatchState:
        """The state of a batch. Raises UserError for an unknown one."""
        return self._state("GET", f"/{batch_id}")

    def cancel(self, batch_id: str) -> BatchState:
        """End what waits of a batch, and what is being graded at its next job."""
        return self._state("DELETE", f"/{batch_id}")

    def lines(self, batch_id: str, after: int = 0) -> Generator[Line, None, None]:
        """Each line of a batch when it has ended, once; `after` is the `ended` of the last one that is known."""
        total = self.state(batch_id).lines
        patience = self._server.patience()
        while after < total:
            for line in self._server.patiently(lambda after=after: self._stream(batch_id, after)):  # type: ignore[misc]
                if line is not None:
                    after = line.ended
                    yield line
                patience.renew()
            if after < total:
                patience.pause(f"the server ends the stream of batch {batch_id} before its last line")

    def _ended(self, work: Iterable[Work | Request]) -> Generator[Line, None, None]:
        """The lines of the work when they end, sent in parts. Raises UserError for one that was refused."""
        for part in self._parts(work):
            batch = self._send(part, secrets.token_urlsafe(16), self._priority)
            left, refused = batch.lines, batch.without_verdict
            try:
                for line in self.lines(batch.id):
                    if line.ended <= refused and line.verdict is None:  # they end first, when the batch is taken
                        raise UserError(f"line {line.line}: {line.message}")
                    left -= 1
                    yield line
            finally:
                if left:
                    self.cancel(batch.id)

    def _send(self, body: bytes, key: str, priority: int) -> BatchState:
        headers = {"Idempotency-Key": key, "Content-Type": "application/x-ndjson"}
        return self._state("POST", f"?priority={priority}", body, headers)

    def _parts(self, work: Iterable[Work | Request]) -> Iterator[bytes]:
        """The lines of JSON, in parts of a bounded size."""
        part, count = bytearray(), 0
        for one in work:
            line = self._line(one)
            if part and len(part) + len(line) > BYTES_AT_ONCE:
                yield bytes(part)
                part, count = bytearray(), 0
            part += line
            count += 1
            if count == LINES_AT_ONCE:
                yield bytes(part)
                part, count = bytearray(), 0
        if part:
            yield bytes(part)

    def _line(self, work: Work | Request) -> bytes:
        return json.dumps(self._fields(work)).encode() + b"\n"

    def _stream(self, batch_id: str, after: int) -> Iterator[Line | None]:
        """The lines of one connection, which may end early, None for an empty one. Raises URLError if there is none."""
        answer = self._server.open("GET", f"/api/batches/{batch_id}/verdicts?after={after}")

        def lines() -> Iterator[Line | None]:
            with closing(answer):
                try:
                    for text in answer:
                        if text.endswith(b"\n"):
                            yield read(Line, text) if text.strip() else None
                except (OSError, HTTPException):  # a connection that broke: `lines` asks again
                    return

        return lines()

    def _state(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> BatchState:
        return self._server.answer(BatchState, method, f"/api/batches{path}", body, headers)

    def _fields(self, work: Work | Request) -> dict[str, object]:
        fields: dict[str, object]
        if isinstance(work, Request):
            work = work.submission
        if isinstance(work, Mapping):
            fields = dict(work)
        elif isinstance(work, Submission):
            fields = {"problem": work.problem_id, **work.model_dump(include=_NAMES, exclude_none=True)}
        else:
            problem, source = work
            fields = {"problem": problem}
            if isinstance(source, Submission):
                fields |= source.model_dump(include=_NAMES, exclude_none=True)
            else:
                fields["source"] = source if isinstance(source, str) else source.read_text(encoding="utf-8")
        if isinstance(fields.get("problem"), Problem):
            fields["problem"] = fields["problem"].id  # type: ignore[attr-defined]
        if isinstance(fields.get("problem"), Path):
            raise UserError(f"{fields['problem']}: a server grades its own problems; name one by its id")
        if self._author is not None:
            fields.setdefault("author", self._author)
        return fields


_NAMES = {"author", "label", "sample", "precision", "source"}
"""The fields of a submission that a line may have."""
