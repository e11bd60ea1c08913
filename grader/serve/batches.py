"""The API for batches: send lines, see how far they are, read verdicts as they are reached, cancel."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from db.batches import Ended
from grader.report.json_csv import escaped_json
from grader.serve.intake import Intake
from grader.serve.tokens import ANYONE
from grader.verdict.batch_state import BatchState

PATH = "/api/batches"
MOST_BYTES = 16 << 20
"""Bytes of one batch."""
_LINES_AT_ONCE = 100
_POLL_SECONDS = 0.1
_LOOK_SECONDS = 2.0
"""Between looks for lines that another process has ended."""
_KEEP_ALIVE_SECONDS = 15.0
"""Interval of empty lines, so that a proxy does not close the connection."""

Authorization = Annotated[str, Header(description="`Bearer TOKEN`")]


def batches(intake: Intake, stopping: Callable[[], bool]) -> APIRouter:
    """The routes; streams end when the server is `stopping`."""
    router = APIRouter(prefix=PATH, tags=["batches"])

    @router.post("", status_code=202, response_model=BatchState)
    async def send(
        request: Request,
        authorization: Authorization = "",
        idempotency_key: Annotated[str | None, Header(description="A repeated key returns the same batch.")] = None,
        priority: Annotated[int, Query(description="A higher one goes first.")] = 0,
    ) -> Response:
        """Queue a batch: a line of JSON for each submission, as for `grader grade`; a bad line ends with its fault."""
        owner = intake.owner(authorization)
        intake.admit(owner, priority, idempotency_key)
        body = await request.body()
        batch_id, new = await run_in_threadpool(intake.take, owner, body, priority, idempotency_key)
        state = await run_in_threadpool(intake.service.state, batch_id)
        assert state is not None, "it was just taken"
        return JSONResponse(state.model_dump(), 202 if new else 200)

    @router.get("/{batch_id}")
    def counts(batch_id: str, authorization: Authorization = "") -> BatchState:
        """The number of lines of a batch that have ended, and their verdicts."""
        return _state(intake, batch_id, authorization)

    @router.get("/{batch_id}/verdicts", response_class=StreamingResponse)
    async def verdicts(
        batch_id: str,
        authorization: Authorization = "",
        after: Annotated[int, Query(ge=0, description="The `ended` of the last line that was read.")] = 0,
    ) -> StreamingResponse:
        """Each line of the batch when it ends, as a line of JSON: `line`, `ended`, and `verdict` or `message`."""
        state = await run_in_threadpool(_state, intake, batch_id, authorization)
        return StreamingResponse(_stream(intake, state, after, stopping), media_type="application/x-ndjson")

    @router.delete("/{batch_id}")
    def cancel(batch_id: str, authorization: Authorization = "") -> BatchState:
        """End what waits, and what is being graded at its next job; verdicts that are stored stay."""
        _state(intake, batch_id, authorization)
        intake.service.cancel(batch_id)
        return _state(intake, batch_id, authorization)

    return router


def _state(intake: Intake, batch_id: str, authorization: str) -> BatchState:
    owner = intake.owner(authorization)
    state = intake.service.state(batch_id)
    if state is None or owner.name not in (state.owner, ANYONE.name):
        raise HTTPException(404, "There is no such batch of this token; batches are forgotten a month after their end.")
    return state


async def _stream(intake: Intake, state: BatchState, after: int, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    service, known = intake.service, -1
    looked = sent = time.monotonic()
    while after < state.lines and not stopping():
        now, version = time.monotonic(), service.version(state.id)
        found = []
        if version != known or now - looked >= _LOOK_SECONDS:
            looked, known = now, version
            found = await run_in_threadpool(service.batches.ended, state.id, after, _LINES_AT_ONCE)
        if found:
            sent, known, after = now, -1, found[-1].ended
            yield "".join(map(_line, found))
        elif now - sent >= _KEEP_ALIVE_SECONDS:
            sent = now
            yield "\n"
        else:
            await asyncio.sleep(_POLL_SECONDS)


def _line(one: Ended) -> str:
    head = f'{{"line":{one.number},"ended":{one.ended}'
    if one.document is not None:
        return f'{head},"verdict":{{"verdict_id":{one.verdict_id},{escaped_json(one.document)[1:]}}}\n'
    message = one.message or "its verdict was deleted"
    return f'{head},"message":{json.dumps(message)}}}\n'
