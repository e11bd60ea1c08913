"""Accepts submissions from a form and from programs, with a token."""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from typing import Annotated, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Header, HTTPException, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from grader.catalog.files import MAX_SOURCE_BYTES
from grader.errors import UserError
from grader.report.site import names
from grader.report.site.pages import Frame, render, security_policy
from grader.serve.guard import TooLarge
from grader.serve.pages import html
from grader.serve.queue import NAME_PATTERN, GradingQueue, Job, QueueFull
from grader.verdict.value import Value

PAGE = "submit.html"
_POLICY = security_policy(form="'self'")


class Submitted(Value):
    """A submission as a program sends it."""

    author: str
    problem: str
    source: str
    label: str | None = None
    quick: bool = False


class JobState(Value):
    """The state of a submission."""

    id: str
    state: Literal["waiting", "grading", "done", "failed"]
    verdict_id: int | None
    message: str | None
    """Why it failed."""


class SubmissionIntake:
    """Checks a submission before it is queued."""

    def __init__(self, queue: GradingQueue, token: str, problems: Sequence[str]) -> None:
        self.queue, self.problems, self._token = queue, problems, token.encode()

    def take(self, token: str, given: Submitted) -> Job:
        """Queue a submission. Raises HTTPException with one sentence."""
        if not hmac.compare_digest(token.encode(errors="replace"), self._token):
            raise HTTPException(403, "The token is wrong; the server printed it when it started.")
        if given.problem not in self.problems:
            raise HTTPException(422, "This server has no such problem.")
        if len(given.source.encode(errors="replace")) > MAX_SOURCE_BYTES:
            raise HTTPException(413, f"The source may have at most {MAX_SOURCE_BYTES} bytes.")
        if not given.source.strip():
            raise HTTPException(422, "The source is empty.")
        try:
            return self.queue.put(**given.model_dump())
        except QueueFull as full:
            raise HTTPException(503, "Too many submissions are waiting; submit again later.") from full
        except UserError as error:
            raise HTTPException(422, str(error)) from error


def submissions(intake: SubmissionIntake, frame: Frame) -> APIRouter:
    """The routes: the form, the page of a submission, and the API."""
    router = APIRouter()
    nothing = Submitted(author="", problem="", source="")

    def form(given: Submitted, fault: str = "", status: int = 200) -> HTMLResponse:
        text = render(
            "served/submit.html",
            PAGE,
            "Submit",
            frame=frame,
            policy=_POLICY,
            fault=fault,
            given=given.model_copy(update={"label": given.label or ""}),
            problems=intake.problems,
            name_pattern=NAME_PATTERN,
            most=MAX_SOURCE_BYTES,
        )
        return html(text, status, _POLICY)

    @router.get("/submit", response_class=HTMLResponse, include_in_schema=False)
    @router.get(f"/{PAGE}", response_class=HTMLResponse, include_in_schema=False)
    def empty_form() -> HTMLResponse:
        return form(nothing)

    @router.post(f"/{PAGE}", include_in_schema=False)
    async def send_form(request: Request) -> Response:
        try:
            body = await request.body()
        except TooLarge:
            return form(nothing, "The source is too large.", 413)
        fields = {
            name: values[0] for name, values in parse_qs(body.decode(errors="replace"), max_num_fields=20).items()
        }
        given = Submitted(
            author=fields.get("author", ""),
            problem=fields.get("problem", ""),
            # HTML forms send line ends as CR LF.
            source=fields.get("source", "").replace("\r\n", "\n"),
            label=fields.get("label") or None,
            quick="quick" in fields,
        )
        try:
            job = intake.take(fields.get("token", ""), given)
        except HTTPException as refused:
            return form(given, str(refused.detail), refused.status_code)
        return RedirectResponse(f"/submitted/{job.id}.html", 303)

    @router.get("/submitted/{job_id}.html", include_in_schema=False)
    def job_page(job_id: str) -> Response:
        job = _job(intake, job_id)
        if job.state == "done" and job.verdict_id is not None:
            return RedirectResponse(f"/{names.verdict_page(job.verdict_id)}", 303)
        page = f"submitted/{job_id}.html"
        text = render("served/job.html", page, f"{job.author} on {job.problem}", frame=frame, job=job)
        return html(text, headers={} if job.state == "failed" else {"Refresh": "2"})

    @router.post("/api/submissions", status_code=202, tags=["submissions"])
    def send(given: Submitted, authorization: Annotated[str, Header()] = "") -> JobState:
        """Queue a submission; needs the header `Authorization: Bearer TOKEN`."""
        return _state(intake.take(authorization.removeprefix("Bearer "), given))

    @router.get("/api/submissions/{job_id}", tags=["submissions"])
    def state(job_id: str) -> JobState:
        """The state of a submission; `/api/verdicts/{verdict_id}` has the verdict."""
        return _state(_job(intake, job_id))

    return router


def _job(intake: SubmissionIntake, job_id: str) -> Job:
    job = intake.queue.get(job_id)
    if job is None:
        raise HTTPException(404, "This submission is unknown, or was submitted long ago.")
    return job


def _state(job: Job) -> JobState:
    return JobState(id=job.id, state=job.state, verdict_id=job.verdict_id, message=job.message)
