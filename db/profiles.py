"""Profiles, stored beside the verdicts on the same source, problem, device and precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from pydantic import ValidationError
from sqlmodel import Session, col, select

from db.store import Store
from db.tables import ProfileRow
from grader.verdict.columns import iso_utc
from grader.verdict.precision import Precision
from grader.verdict.profiles import Profile


class Profiled(Protocol):
    """The row of the verdict that a profile belongs to."""

    @property
    def source_hash(self) -> str: ...
    @property
    def problem_hash(self) -> str: ...
    @property
    def device_name(self) -> str: ...
    @property
    def precision(self) -> Precision: ...


class _Key(NamedTuple):
    source_hash: str
    problem_hash: str
    device_name: str
    precision: str


def save_profile(store: Store, profile: Profile) -> int:
    """Keep a profile; returns its id."""
    key = _key(profile)
    with store.writing() as session:
        row = ProfileRow(**key._asdict(), created_at=iso_utc(profile.created_at), document=profile.model_dump_json())
        session.add(row)
        session.flush()
        assert row.id is not None, "a flushed row has an id"
        return row.id


def newest_profiles(store: Store, of: Iterable[Profiled]) -> list[int | None]:
    """The id of the newest profile of each; None where there is none."""
    with store.reading() as session:
        known = _ids(session)
    return [known.get(_key(one)) for one in of]


def read_profile(store: Store, profile_id: int) -> Profile | None:
    """A profile by its id; None if there is none, or another version of the grader wrote it."""
    with store.reading() as session:
        row = session.get(ProfileRow, profile_id)
        document = None if row is None else row.document
    try:
        return None if document is None else Profile.model_validate_json(document)
    except ValidationError:
        return None


def _ids(session: Session) -> dict[_Key, int]:
    columns = (ProfileRow.source_hash, ProfileRow.problem_hash, ProfileRow.device_name, ProfileRow.precision)
    rows = session.exec(select(ProfileRow.id, *columns).order_by(col(ProfileRow.id)))  # type: ignore[call-overload]
    return {_Key(*key): row_id for row_id, *key in rows}


def _key(of: Profiled | Profile) -> _Key:
    return _Key(of.source_hash, of.problem_hash, of.device_name, str(of.precision))
