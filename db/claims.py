"""Claims: what a run is grading, so that no other run with the same database grades it too.

A claim ends with its verdict and with its run. Another run may take it over once the process behind its run is dead: at
once where that can be seen, else when it has said nothing for `LEASE_SECONDS`. A process that was only stopped goes on
with its other claims. Of what two runs then grade, the first verdict is stored and ends the claim; a run that finds no
claim at its own does not store it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from sqlalchemy.dialects.sqlite import insert
from sqlmodel import col, delete

from db.presence import Presence, RunProgress, lives
from db.store import Run, Store
from db.tables import ClaimRow, GraderRow


class Claims:
    """The claims of one run. A context manager; any thread may call it."""

    def __init__(
        self,
        store: Store,
        run: Run,
        say: Callable[[str], None],
        *,
        priority: int = 0,
        status: Callable[[], RunProgress] | None = None,
        cancelled: Callable[[str | None], None] = lambda _: None,
    ) -> None:
        """`say` prints a line for the user; `status` is what others see of this run.

        `cancelled` gets the author whose submissions are to end, or None for all of the run.
        """
        self._store, self._run, self._say = store, run, say
        self._presence = Presence(store, run, priority=priority, status=status, cancelled=cancelled)

    def __enter__(self) -> Self:
        self._store.patiently(self._presence.enter, self._say)
        self._presence.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._presence.leave()

    def wait_turn(self) -> None:
        """Return once no grader of this machine that has a higher priority is at work."""
        self._presence.wait_for_others(self._say)

    def take(self, key: str) -> bool:
        """Whether the claim is this run's now; False while another one that lives has it. Raises StoreError."""
        return self._store.patiently(lambda: self._take(key), self._say)

    def release(self, key: str) -> None:
        """End a claim without a verdict. Raises StoreError."""

        def end() -> None:
            with self._store.writing() as session:
                session.execute(delete(ClaimRow).where(col(ClaimRow.key) == key, col(ClaimRow.run_id) == self._run.id))

        self._store.patiently(end, self._say)

    def _take(self, key: str) -> bool:
        with self._store.writing() as session:
            held = session.get(ClaimRow, key)
            if held is not None and held.run_id == self._run.id:
                return True
            if held is not None and lives(session.get_one(GraderRow, held.run_id)):
                return False
            self._presence.sign(session)
            own = {"run_id": self._run.id}
            upsert = insert(ClaimRow).values(key=key, **own)
            session.execute(upsert.on_conflict_do_update(index_elements=["key"], set_=own))
            return True
