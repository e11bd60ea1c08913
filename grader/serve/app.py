"""Assembles the server: guard, pages, live page, API, and submissions if they are enabled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from db import Store
from db.labels import LabelChoice
from grader._version import __version__
from grader.catalog.files import MAX_SOURCE_BYTES
from grader.errors import GraderError
from grader.report.json_csv import escaped_json
from grader.report.site.pages import Frame
from grader.serve import batches, live, metrics, profiles, submit
from grader.serve.api import api
from grader.serve.guard import Guard
from grader.serve.intake import Intake
from grader.serve.pages import error_page, pages
from grader.serve.snapshot import Snapshots

_MOST_BYTES = 3 * MAX_SOURCE_BYTES + (1 << 16)
"""A form may encode one byte of a source as three."""

_TITLES = {404: "Not found", 413: "Too large", 429: "Too often", 503: "Not now"}


class _Json(JSONResponse):
    """JSON in which no character breaks or reorders the line where it is shown."""

    def render(self, content: Any) -> bytes:
        return escaped_json(super().render(content).decode()).encode()


def make_app(
    store: Store,
    path: Path,
    *,
    intake: Intake | None,
    hosts: Collection[str],
    labels: LabelChoice,
    frame: Frame,
    stopping: Callable[[], bool],
) -> FastAPI:
    """The application. `store` is read-only; without an `intake`, submissions are not accepted.

    `labels` selects what the pages rank; `frame` has the site's title and introduction.
    """
    links = ((live.PAGE, "Live"), (submit.PAGE, "Submit"))
    frame = replace(frame, links=links if intake else links[:1])
    snapshots = Snapshots(store, path, frame, labels)
    app = FastAPI(
        title="kernel-grader",
        version=__version__,
        openapi_url="/api/openapi.json",
        docs_url=None,
        redoc_url=None,
        default_response_class=_Json,
    )
    app.include_router(pages(store, snapshots, frame))
    app.include_router(live.live(store, frame, stopping))
    app.include_router(api(store, snapshots))
    app.include_router(metrics.metrics(store, snapshots, intake.service if intake else None))
    if intake:
        app.include_router(submit.submissions(intake, frame))
        app.include_router(batches.batches(intake, stopping))
        app.include_router(profiles.profiles(intake))
    app.add_middleware(
        Guard, hosts=hosts, most_bytes=lambda path: batches.MOST_BYTES if path == batches.PATH else _MOST_BYTES
    )

    def fault(request: Request, status: int, message: str, headers: Mapping[str, str] | None = None) -> Response:
        if request.url.path.startswith("/api/"):
            return _Json({"detail": message}, status, headers)
        # The page's relative links start from the folder of the requested address.
        page = "x/" * (request.url.path.count("/") - 1) + "x"
        return error_page(frame, status, _TITLES.get(status, "Not possible"), message, page)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        return fault(request, error.status_code, str(error.detail), error.headers)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        return fault(request, 422, f"{'.'.join(map(str, first['loc']))}: {first['msg']}")

    @app.exception_handler(GraderError)
    def failed(request: Request, error: GraderError) -> Response:
        return fault(request, 503, str(error))

    return app
