"""The progress page of running gradings, and its server-sent events."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from fastapi import APIRouter, Header, Query
from fastapi.responses import HTMLResponse, StreamingResponse
from starlette.concurrency import run_in_threadpool

from db import Store
from db.rows import Row, read_rows
from db.runs import RunState, at_work, recent_runs
from grader.report.site.pages import Frame, fragment, render, security_policy
from grader.report.work import about, waiting, worker_line
from grader.serve.pages import html

PAGE = "live.html"

_ID = re.compile(r"[0-9]{1,18}")
_MOST_ID = 2**63 - 1

_POLL_SECONDS = 0.5
_KEEP_ALIVE_SECONDS = 15.0
"""Interval of keep-alive messages, so that a proxy does not close the connection."""

_RUNS_SHOWN = 8
_VERDICTS_SHOWN = 50
_MOST_CAUGHT_UP = 200
"""Verdicts sent to a page that reconnects; older ones are in the list of all verdicts."""

Runs = tuple[list[RunState], dict[int, list[str]]]
"""Runs, and what those do that grade now."""


def live(store: Store, frame: Frame, stopping: Callable[[], bool]) -> APIRouter:
    """The routes of the page and its events; events end when the server is `stopping`."""
    router = APIRouter(include_in_schema=False)

    @router.get("/live", response_class=HTMLResponse)
    @router.get(f"/{PAGE}", response_class=HTMLResponse)
    def page() -> HTMLResponse:
        newest = store.extent()[1]
        rows = read_rows(store, after=max(0, newest - _VERDICTS_SHOWN))[::-1]
        policy = security_policy(connect="'self'")
        text = render(
            "served/live.html",
            PAGE,
            "Live",
            frame=frame,
            policy=policy,
            # Verdicts stored since this was read are sent twice rather than missed.
            since=max([newest, *(row.id for row in rows)]),
            rows=rows,
            runs=recent_runs(store, _RUNS_SHOWN),
            doing=_doing(store),
        )
        return html(text, policy=policy)

    @router.get("/events")
    async def events(
        since: Annotated[int, Query(ge=0, le=_MOST_ID)] = 0, last_event_id: Annotated[str | None, Header()] = None
    ) -> StreamingResponse:
        # A browser that reconnects sends its last event id; the address still has the first `since`.
        known = last_event_id is not None and _ID.fullmatch(last_event_id)
        after = int(last_event_id or 0) if known else since
        return StreamingResponse(_events(store, after, stopping), media_type="text/event-stream")

    return router


async def _events(store: Store, after: int, stopping: Callable[[], bool]) -> AsyncIterator[str]:
    known: Runs | None = None
    sent_at = time.monotonic()
    yield "retry: 2000\n\n"
    while not stopping():
        rows, runs = await run_in_threadpool(_poll, store, after)
        for row in rows:
            after = row.id
            yield _event("verdict", {"id": row.id, "row": fragment("macros.html", "table_row", row, "")}, row.id)
        if runs != known:
            known = runs
            yield _event("runs", {"rows": fragment("served/runs.html", "runs_body", *runs)})
        elif rows or time.monotonic() - sent_at > _KEEP_ALIVE_SECONDS:
            yield ": keep-alive\n\n"
        else:
            await asyncio.sleep(_POLL_SECONDS)
            continue
        sent_at = time.monotonic()


def _event(kind: str, data: dict[str, object], event_id: int | None = None) -> str:
    """One server-sent event. JSON has no line breaks, so its data is one line."""
    named = "" if event_id is None else f"id: {event_id}\n"
    return f"event: {kind}\n{named}data: {json.dumps(data)}\n\n"


def _poll(store: Store, after: int) -> tuple[list[Row], Runs]:
    return _rows_after(store, after), (recent_runs(store, _RUNS_SHOWN), _doing(store))


def _doing(store: Store) -> dict[int, list[str]]:
    """Lines about each run that grades now and its workers."""
    found = {}
    for one in at_work(store):
        if one.work is not None:
            summary = f"{waiting(one.work)}{about(one.work)}".removesuffix(", ")
            found[one.run] = [line for line in (summary, *map(worker_line, one.work.workers)) if line]
    return found


def _rows_after(store: Store, after: int) -> list[Row]:
    newest = store.extent()[1]
    return read_rows(store, after=max(after, newest - _MOST_CAUGHT_UP)) if newest > after else []
