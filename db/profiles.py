"""Profiles, stored beside the verdicts on the same source, problem, device and precision."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sqlmodel import Session, col, select

from db.records import flushed
from db.rows import Row
from db.store import Store
from db.tables import ProfileRow
from grader.verdict.columns import iso_utc
from grader.verdict.profiles import Profile


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
        return flushed(row.id)


def newest_profiles(store: Store, rows: Iterable[Row]) -> list[int | None]:
    """The id of the newest profile beside each verdict; None where there is none."""
    with store.reading() as session:
        known = _ids(session)
    return [known.get(_key(one)) for one in rows]


def newest_profile(store: Store, row: Row) -> Profile | None:
    """The newest profile beside one verdict; None as from `read_profile`."""
    beside = [col(getattr(ProfileRow, name)) == value for name, value in _key(row)._asdict().items()]
    with store.reading() as session:
        found = session.exec(select(ProfileRow).where(*beside).order_by(col(ProfileRow.id).desc()).limit(1)).first()
        return None if found is None else Profile.read(found.document)


def read_profile(store: Store, profile_id: int) -> Profile | None:
    """A profile by its id; None if there is none, or another version of the grader wrote it."""
    with store.reading() as session:
        row = session.get(ProfileRow, profile_id)
        return None if row is None else Profile.read(row.document)


def _ids(session: Session) -> dict[_Key, int]:
    columns = (ProfileRow.source_hash, ProfileRow.problem_hash, ProfileRow.device_name, ProfileRow.precision)
    rows = session.exec(select(ProfileRow.id, *columns).order_by(col(ProfileRow.id)))  # type: ignore[call-overload]
    return {_Key(*key): row_id for row_id, *key in rows}


def _key(record: Row | Profile) -> _Key:
    return _Key(record.source_hash, record.problem_hash, record.device_name, str(record.precision))
