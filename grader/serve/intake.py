"""Checks what is sent before it is queued: who sends it, how often, how much, and what."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping

from fastapi import HTTPException

from db.batches import NewLine
from grader.catalog.files import MAX_SOURCE_BYTES
from grader.catalog.problems import Catalog
from grader.catalog.requests import UNKNOWN_AUTHOR, Pair, RequestReader
from grader.errors import StoreError, UserError
from grader.options import GraderOptions
from grader.serve.service import GradingService
from grader.serve.tokens import Owner, Rate, Tokens, names_fault, valid_name
from grader.serve.waiting import QueueFull
from grader.verdict.value import digest

MOST_LINES = 10_000
"""Lines of one batch."""
MOST_KEY = 200
"""Characters of an idempotency key."""
LEAST_PRIORITY = -100
RETRY_SECONDS = 5
"""After which a client may ask a full queue again."""
_BUSY = "Too many submissions are waiting; send this again later."


class Intake:
    """Raises HTTPException with one sentence for what is refused."""

    def __init__(
        self, service: GradingService, tokens: Tokens, rate: Rate, catalog: Catalog, options: GraderOptions
    ) -> None:
        self.service, self.options = service, options
        self.problems = sorted(catalog.problems)
        self._tokens, self._rate, self._reader = tokens, rate, RequestReader(catalog, options)

    def owner(self, authorization: str) -> Owner:
        """The owner of the token in a header."""
        owner = self._tokens.owner(authorization)
        if owner is None:
            raise HTTPException(
                403, "The token is wrong; ask for yours, or see what the server printed when it started."
            )
        return owner

    def admit(self, owner: Owner, priority: int, key: str | None) -> None:
        """Refuse what comes too often or asks for too much, before its body is read."""
        if wait := self._rate.wait_seconds(owner):
            after = {"Retry-After": str(math.ceil(wait))}
            raise HTTPException(429, "Too many requests with this token; send this again later.", after)
        if not LEAST_PRIORITY <= priority <= owner.most_priority:
            raise HTTPException(422, f"With this token the priority is from {LEAST_PRIORITY} to {owner.most_priority}.")
        if key is not None and not 0 < len(key) <= MOST_KEY:
            raise HTTPException(422, f"An idempotency key has 1 to {MOST_KEY} characters.")
        if self.service.fault is not None:
            raise HTTPException(503, f"Nothing is graded here at the moment: {self.service.fault}")

    def take(self, owner: Owner, body: bytes, priority: int = 0, key: str | None = None) -> tuple[str, bool]:
        """The id of the batch with these lines of JSON, and whether it is new. Raises StoreError."""
        lines = [line for line in body.splitlines() if line.strip()]
        if not 1 <= len(lines) <= MOST_LINES:
            raise HTTPException(413 if lines else 422, f"A batch has 1 to {MOST_LINES} lines, this one {len(lines)}.")
        read = [self._line(line, owner) for line in lines]
        sent = digest(f"{priority}\n{body.decode(errors='replace')}")
        try:
            return self.service.take(owner.name, key, sent, priority, read)
        except QueueFull as full:
            raise HTTPException(503, _BUSY, {"Retry-After": str(RETRY_SECONDS)}) from full
        except StoreError:
            raise  # no fault of the sender's
        except UserError as error:
            raise HTTPException(422, str(error)) from error

    def pair(self, owner: Owner, body: bytes) -> Pair:
        """The problem and the submission of one line of JSON. Raises UserError."""
        line = self._line(body, owner)
        if line.message is not None:
            raise UserError(line.message)
        return self._reader.from_json(line.text.encode(), {})

    def fault(self, fields: Mapping[str, object]) -> tuple[int, str] | None:
        """Why one submission is refused, with its HTTP status."""
        line = self._line(json.dumps(fields).encode(), None)
        if fields.get("problem") not in self.problems:
            return 422, "This server has no such problem."
        source = str(fields.get("source"))
        if len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
            return 413, f"The source may have at most {MAX_SOURCE_BYTES} bytes."
        if not source.strip():
            return 422, "The source is empty."
        return None if line.message is None else (422, line.message)

    def _line(self, line: bytes, owner: Owner | None) -> NewLine:
        """A line that can be graded, under its owner's name, or why it cannot."""
        author = owner.author if owner else None
        try:
            _, submission = self._reader.from_json(line, {})
            if author is not None and submission.author not in (author, UNKNOWN_AUTHOR):
                raise UserError(f"this token is for the author {author!r}, not {submission.author!r}")
            names = [("author", author or submission.author), ("label", submission.label)]
            for what, name in names:
                if name is not None and not valid_name(name):
                    raise UserError(names_fault(what, name))
        except UserError as error:
            return NewLine(author or "", "", str(error))
        sender = author or submission.author
        return NewLine(sender, json.dumps({**json.loads(line), "author": sender}))
