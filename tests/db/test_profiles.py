"""Profiles beside verdicts: the newest one of the same source, and what it costs to find it."""

from sqlalchemy import event

from db import Store
from db.profiles import newest_profile, newest_profiles, save_profile
from db.rows import read_rows
from tests import samples


def test_a_verdict_s_profile_is_the_newest_of_its_source_and_is_found_by_the_index(tmp_path):
    submission, problem = samples.submission(source="x = 1"), samples.problem()
    told = samples.profile(submission)
    with Store.open(tmp_path / "g.db") as store:
        with store.run([]) as run:
            verdict = samples.verdict(submission)
            store.save(verdict, submission, problem, run)
        (row,) = read_rows(store)
        assert newest_profile(store, row) is None
        of_it = {name: getattr(row, name) for name in ("source_hash", "problem_hash", "device_name", "precision")}
        for variant, changes in {"old": {}, "new": {}, "another": {"source_hash": "0" * 64}}.items():
            save_profile(store, told.model_copy(update={**of_it, **changes, "variant": variant}))
        queries = []
        event.listen(store._engine, "before_cursor_execute", lambda *given: queries.append(given[2:4]))
        assert newest_profile(store, row).variant == "new"
        assert newest_profiles(store, [row]) == [2]
        sql, values = next(given for given in queries if "FROM profiles" in given[0])
        with store.reading() as session:
            (plan,) = session.connection().exec_driver_sql(f"explain query plan {sql}", values)
    assert plan.detail.startswith("SEARCH profiles USING INDEX ix_profiles_of (source_hash=?")
