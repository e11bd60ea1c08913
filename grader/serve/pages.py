"""Serves the report's pages at the paths of the static site, and comparisons of two submissions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import HTMLResponse

from db import Store
from db.profiles import newest_profile
from db.rows import Row
from grader.report.site import names, overview_pages
from grader.report.site.code import Diff, compare
from grader.report.site.filters import Filter, filtered_page
from grader.report.site.pages import Frame, render, security_policy
from grader.report.site.verdict_page import Other, VerdictPage, verdict_page
from grader.serve.snapshot import Snapshot, Snapshots
from grader.verdict.models import Verdict

T = TypeVar("T")

_MOST_OTHERS = 500


def html(text: str, status: int = 200, policy: str = "", headers: Mapping[str, str] | None = None) -> HTMLResponse:
    """A response with the page's policy in a header, where `frame-ancestors` has an effect."""
    sent = {"Content-Security-Policy": f"{policy or security_policy()}; frame-ancestors 'none'", **(headers or {})}
    return HTMLResponse(text.encode("utf-8", errors="replace"), status, sent)


def pages(store: Store, snapshots: Snapshots, frame: Frame) -> APIRouter:
    """The routes of all pages."""
    router = APIRouter(include_in_schema=False, default_response_class=HTMLResponse)

    @router.get("/")
    @router.get(f"/{names.INDEX}")
    def index() -> HTMLResponse:
        return html(snapshots.current().index)

    @router.get("/lists/{number:int}.html")
    def one_list(number: int) -> HTMLResponse:
        rows = snapshots.current().rows
        if not 1 <= number <= overview_pages.list_count(rows):
            raise HTTPException(404, "The list has no such page.")
        return html(overview_pages.list_page(rows, number, frame))

    @router.get(f"/{names.FILTERED}")
    def filtered(wanted: Annotated[Filter, Depends()], page: int = 1) -> HTMLResponse:
        snapshot = snapshots.current()
        text = filtered_page(snapshot.rows, wanted, page, snapshot.choices, frame)
        return html(text, policy=security_policy(form="'self'"))

    @router.get("/problems/{name}")
    def problem(name: str) -> HTMLResponse:
        snapshot = snapshots.current()
        problem_id = _known(snapshot.problems, f"problems/{name}")
        rows = [row for row in snapshot.rows if row.problem == problem_id]
        counting = [row for row in snapshot.counted if row.problem == problem_id]
        source = store.problem_source(rows[-1].problem_hash)
        return html(overview_pages.problem_page(problem_id, rows, counting, snapshot.boards, source, frame))

    @router.get("/authors/{name}")
    def author(name: str) -> HTMLResponse:
        snapshot = snapshots.current()
        author_name = _known(snapshot.authors, f"authors/{name}")
        rows = [row for row in snapshot.rows if row.author == author_name]
        counting = [row for row in snapshot.counted if row.author == author_name]
        return html(overview_pages.author_page(author_name, rows, counting, snapshot.boards, frame))

    @router.get("/devices/{name}")
    def matrix(name: str) -> HTMLResponse:
        return html(overview_pages.matrix_page(_known(snapshots.current().devices, f"devices/{name}"), frame))

    @router.get("/verdicts/{verdict_id:int}.html")
    def verdict(verdict_id: int) -> HTMLResponse:
        snapshot = snapshots.current(at_least=verdict_id)
        row = _row(snapshot, verdict_id)
        others = tuple(Other(other, title, _source(store, other)) for other, title in snapshot.others.of(row))
        ((_, document),) = store.documents([verdict_id])
        newer = snapshot.newer.get(verdict_id)
        profile = newest_profile(store, row)
        page = VerdictPage(row, document, _source(store, row), others, newer, frame, profile)
        return html(verdict_page(page, Verdict.read(document)))

    @router.get("/compare/{verdict_id:int}.html")
    def choose(verdict_id: int) -> HTMLResponse:
        snapshot = snapshots.current(at_least=verdict_id)
        row = _row(snapshot, verdict_id)
        newest = {one.source_hash: one for one in snapshot.rows if one.problem == row.problem}
        newest.pop(row.source_hash)
        others = sorted(newest.values(), key=lambda one: -one.id)[:_MOST_OTHERS]
        return html(_compare(frame, f"compare/{verdict_id}.html", row, None, others, None))

    @router.get("/compare/{old:int}-{new:int}.html")
    def compared(old: int, new: int) -> HTMLResponse:
        snapshot = snapshots.current(at_least=max(old, new))
        other, row = _row(snapshot, old), _row(snapshot, new)
        if other.problem != row.problem:
            raise HTTPException(404, "The two verdicts are for different problems.")
        diff = compare(_source(store, other), _source(store, row))
        return html(_compare(frame, f"compare/{old}-{new}.html", row, other, [], diff))

    return router


def error_page(frame: Frame, status: int, title: str, message: str, page: str = names.INDEX) -> HTMLResponse:
    """A page with one sentence and a link to the first page."""
    return html(render("served/error.html", page, title, frame=frame, message=message), status)


def _compare(frame: Frame, page: str, row: Row, other: Row | None, others: list[Row], diff: Diff | None) -> str:
    title = f"From {other.name} to {row.name}" if other else f"Compare {row.name}"
    return render("served/compare.html", page, title, frame=frame, row=row, other=other, others=others, diff=diff)


def _source(store: Store, row: Row) -> str:
    return store.sources([row.source_hash]).get(row.source_hash, "")


def _row(snapshot: Snapshot, verdict_id: int) -> Row:
    if verdict_id not in snapshot.by_id:
        raise HTTPException(404, f"There is no verdict {verdict_id}.")
    return snapshot.by_id[verdict_id]


def _known(by_page: dict[str, T], page: str) -> T:
    if page not in by_page:
        raise HTTPException(404, "There is no such page.")
    return by_page[page]
