"""Accepts submissions from a form and from programs, with a token."""

from __future__ import annotations

import json
from typing import Annotated, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Header, HTTPException, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from grader.catalog.files import MAX_SOURCE_BYTES
from grader.report.site import names
from grader.report.site.pages import Frame, render, security_policy
from grader.serve.guard import TooLarge
from grader.serve.intake import Intake
from grader.serve.pages import html
from grader.serve.tokens import NAME_PATTERN
from grader.verdict.value import Value

PAGE = "submit.html"
_POLICY = security_policy(form="'self'")


class Submitted(Value):
    """A submission as a program sends it."""

    author: str
    problem: str
    source: str
    label: str | None = None
    quick: bool | None = None
    """Whether the server is expected to grade with `--quick`; another answer refuses it."""


class JobState(Value):
    """The state of a submission."""

    id: str
    state: Literal["waiting", "grading", "done", "failed"]
    verdict_id: int | None
    message: str | None
    """Why it failed."""


def submissions(intake: Intake, frame: Frame) -> APIRouter:
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
            quick=intake.options.quick,
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
        try:
            fields = {name: one[0] for name, one in parse_qs(body.decode(errors="replace"), max_num_fields=20).items()}
        except ValueError:
            return form(nothing, "The form has too many fields.", 422)
        given = Submitted(
            author=fields.get("author", ""),
            problem=fields.get("problem", ""),
            # HTML forms send line ends as CR LF.
            source=fields.get("source", "").replace("\r\n", "\n"),
            label=fields.get("label") or None,
        )
        try:
            job_id = await run_in_threadpool(_take, intake, fields.get("token", ""), given)
        except HTTPException as refused:
            return form(given, str(refused.detail), refused.status_code)
        return RedirectResponse(f"/submitted/{job_id}.html", 303)

    @router.get("/submitted/{job_id}.html", include_in_schema=False)
    def job_page(job_id: str) -> Response:
        job = _state(intake, job_id)
        if job.state == "done" and job.verdict_id is not None:
            return RedirectResponse(f"/{names.verdict_page(job.verdict_id)}", 303)
        page = f"submitted/{job_id}.html"
        text = render("served/job.html", page, "Submission", frame=frame, job=job)
        return html(text, headers={} if job.state == "failed" else {"Refresh": "2"})

    @router.post("/api/submissions", status_code=202, tags=["submissions"])
    def send(given: Submitted, authorization: Annotated[str, Header()] = "") -> JobState:
        """Queue a submission; needs the header `Authorization: Bearer TOKEN`."""
        return _state(intake, _take(intake, authorization, given))

    @router.get("/api/submissions/{job_id}", tags=["submissions"])
    def state(job_id: str) -> JobState:
        """The state of a submission; `/api/verdicts/{verdict_id}` has the verdict."""
        return _state(intake, job_id)

    return router


def _take(intake: Intake, authorization: str, given: Submitted) -> str:
    """Queue one submission, as a batch of one line; returns the batch's id. Raises HTTPException."""
    owner = intake.owner(authorization)
    intake.admit(owner, 0, None)
    if given.quick is not None and given.quick != intake.options.quick:
        raise HTTPException(422, f"This server grades {'with' if intake.options.quick else 'without'} --quick.")
    fields = given.model_dump(exclude={"quick"}, exclude_none=True)
    if fault := intake.fault(fields):
        raise HTTPException(*fault)
    return intake.take(owner, json.dumps(fields).encode())[0]


def _state(intake: Intake, job_id: str) -> JobState:
    batch = intake.service.state(job_id)
    if batch is None or batch.lines != 1:
        raise HTTPException(404, "This submission is unknown, or was submitted long ago.")
    state: Literal["waiting", "grading", "done", "failed"]
    if not batch.ended:
        state = "grading" if intake.service.is_under_way(job_id) else "waiting"
        return JobState(id=job_id, state=state, verdict_id=None, message=intake.service.fault)
    (line,) = intake.service.batches.ended(job_id, 0, 1)
    state = "failed" if line.verdict_id is None else "done"
    return JobState(id=job_id, state=state, verdict_id=line.verdict_id, message=line.message)
