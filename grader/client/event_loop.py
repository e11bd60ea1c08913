"""Grades on a server from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Any, Self

from grader.api import in_a_thread
from grader.catalog.requests import Request, Work
from grader.client.blocking import Client, Line
from grader.verdict.batch_state import BatchState
from grader.verdict.models import Verdict
from grader.verdict.profiles import Profile


class AsyncClient:
    """A `Client` for event loops: an asynchronous context manager with the same methods."""

    def __init__(self, address: str, token: str | None = None, **options: Any) -> None:
        """The arguments of `Client`."""
        self._client = Client(address, token, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Nothing is kept open."""

    async def grade(self, path: str | Path | None = None, **given: Any) -> Verdict:
        """`Client.grade`, while the event loop goes on."""
        return await asyncio.to_thread(self._client.grade, path, **given)

    async def grade_many(self, work: Iterable[Work | Request]) -> AsyncGenerator[Verdict, None]:
        """`Client.grade_many`, while the event loop goes on."""
        async with aclosing(self._client.agrade_many(work)) as verdicts:
            async for verdict in verdicts:
                yield verdict

    async def profile(self, work: Work | Request) -> Profile:
        """`Client.profile`, while the event loop goes on."""
        return await asyncio.to_thread(self._client.profile, work)

    async def submit(self, work: Iterable[Work | Request], **given: Any) -> BatchState:
        """`Client.submit`, while the event loop goes on."""
        return await asyncio.to_thread(self._client.submit, work, **given)

    async def state(self, batch_id: str) -> BatchState:
        """`Client.state`, while the event loop goes on."""
        return await asyncio.to_thread(self._client.state, batch_id)

    async def lines(self, batch_id: str, after: int = 0) -> AsyncGenerator[Line, None]:
        """`Client.lines`, while the event loop goes on."""
        async with aclosing(in_a_thread(self._client.lines(batch_id, after))) as lines:
            async for line in lines:
                yield line

    async def cancel(self, batch_id: str) -> BatchState:
        """`Client.cancel`, while the event loop goes on."""
        return await asyncio.to_thread(self._client.cancel, batch_id)
