"""The API for profiles: a submission beside its reference, kernel by kernel."""

from __future__ import annotations

import threading

from fastapi import APIRouter, HTTPException, Request, Response
from starlette.concurrency import run_in_threadpool

from grader.errors import NotGraded, StoreError, UserError
from grader.report.json_csv import json_line
from grader.serve.batches import Authorization
from grader.serve.intake import RETRY_SECONDS, Intake
from grader.serve.tokens import Owner
from grader.verdict.profiles import Profile

PATH = "/api/profiles"
MOST_AT_ONCE = 4
"""Profiles that are waited for, each by a thread. A choice."""


def profiles(intake: Intake) -> APIRouter:
    """The route."""
    router = APIRouter(tags=["profiles"])
    free = threading.BoundedSemaphore(MOST_AT_ONCE)

    @router.post(PATH, response_model=Profile)
    async def profile(request: Request, authorization: Authorization = "") -> Response:
        """Profile one submission, a line of JSON as in a batch. Answers when it is done; it is stored, as a claim."""
        owner = intake.owner(authorization)
        intake.admit(owner, 0, None)
        body = await request.body()
        if not free.acquire(blocking=False):
            raise HTTPException(503, "Other profiles are being made; ask again.", {"Retry-After": str(RETRY_SECONDS)})
        try:
            found = await run_in_threadpool(_profile, intake, owner, body)
        finally:
            free.release()
        return Response(json_line(found), media_type="application/json")

    return router


def _profile(intake: Intake, owner: Owner, body: bytes) -> Profile:
    """Raises HTTPException for what cannot be profiled, GraderError if the server stops or cannot store it."""
    try:
        return intake.service.profile(intake.pair(owner, body))
    except StoreError:
        raise
    except (UserError, NotGraded) as error:
        raise HTTPException(422, str(error)) from error
