"""Saves the verdicts of a run, and keeps what the database cannot take in a file beside it."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Literal, NoReturn, TextIO

from db import records
from db.store import Run, Store
from grader.errors import ClaimLost, StoreError
from grader.verdict.models import Problem, Submission, Verdict
from grader.verdict.value import Value

SUFFIX = ".unsaved.jsonl"
"""Follows the database's name in the name of the file with unsaved verdicts."""

_GONE = "the database was deleted or replaced meanwhile"


class Unsaved(Value):
    """One line of the file: a verdict with its sources."""

    verdict: Verdict
    submission: Submission
    problem: Problem


class Keeper:
    """Saves verdicts under one run, whatever happens to the database meanwhile.

    While another process keeps it locked, saving waits. If it was deleted or replaced, or fails otherwise, the verdict
    goes to the file, with all earlier ones of the run that went with the database; the next run takes them over.
    """

    def __init__(self, store: Store, run: Run, say: Callable[[str], None]) -> None:
        """`say` prints a line for the user."""
        self._store, self._run, self._say = store, run, say
        self._file = _identity(store.path)
        self._lost_kept = False
        self._kept = 0
        """Verdicts that this run has written to the file."""

    def save(self, verdict: Verdict, submission: Submission, problem: Problem, claim: str | None = None) -> Verdict:
        """The verdict with its id; the claim on it ends.

        Raises StoreError, which names the file, if it is kept there instead, and ClaimLost.
        """
        one = Unsaved(verdict=verdict, submission=submission, problem=problem)
        if self._gone():
            self._keep([*self._lost(), one], StoreError(f"{self._store.path}: {_GONE}"))
        try:
            return self._store.patiently(
                lambda: self._store.save(verdict, submission, problem, self._run, claim=claim), self._say
            )
        except ClaimLost:
            raise
        except BaseException as error:
            self._keep([one], error)

    def check(self) -> None:
        """Raise StoreError if the database was deleted or replaced; this run's verdicts are then in the file."""
        if self._gone():
            self._keep(self._lost(), StoreError(f"{self._store.path}: {_GONE}"))

    def take_over(self) -> int:
        """Save what earlier runs could not, and delete their file. Returns the number of verdicts.

        If it fails, none of them is saved. Raises StoreError for a damaged file.
        """
        path = _beside(self._store.path)
        return self._store.patiently(lambda: self._taken_over(path), self._say) if path.exists() else 0

    def _taken_over(self, path: Path) -> int:
        with ExitStack() as until_deleted:
            with self._store.writing() as session:
                # The database is locked first: no run that fails to save waits at the file for a locked database.
                session.connection()
                try:
                    file = until_deleted.enter_context(_locked(path, "r"))
                    kept = [Unsaved.model_validate_json(line) for line in file]
                except FileNotFoundError:
                    return 0  # another run was faster
                except (OSError, ValueError) as error:
                    raise StoreError(
                        f"{path}: this is no file of unsaved verdicts, or it is damaged; move it away"
                    ) from error
                # A run that was killed right here may have saved them.
                new = [one for one in kept if not records.has(session, one.verdict)]
                for one in new:
                    records.add(session, one.verdict, one.submission, one.problem, self._run.id)
            path.unlink()
        return len(new)

    def _gone(self) -> bool:
        return _identity(self._store.path) != self._file

    def _keep(self, kept: Sequence[Unsaved], error: BaseException) -> NoReturn:
        """Write what is unsaved to the file, and raise the error, with the file's name."""
        if not kept:
            raise error
        place = _append(kept, self._store.path)
        self._kept += len(kept)
        count = "1 verdict is" if self._kept == 1 else f"{self._kept} verdicts are"
        message = f"{count} kept in {place}; the next run with this database takes over what lies beside it"
        if isinstance(error, StoreError):
            raise StoreError(f"{error}; {message}") from error
        self._say(message)
        raise error

    def _lost(self) -> list[Unsaved]:
        """Earlier verdicts of this run, once: the open connection still reads the file that is gone."""
        if self._lost_kept:
            return []
        self._lost_kept = True
        try:
            return [Unsaved(verdict=a, submission=b, problem=c) for a, b, c in self._store.of_run(self._run)]
        except StoreError:
            return []


def _identity(path: Path) -> tuple[int, int] | None:
    """The file's identity, which differs from that of a file put in its place; None for one in memory."""
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


@contextmanager
def _locked(path: Path, mode: Literal["a", "r"]) -> Iterator[TextIO]:
    """The file, open; meanwhile no other run appends to it or takes it over. Raises OSError."""
    while True:
        with path.open(mode) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.fstat(file.fileno()).st_nlink:  # else it was deleted while this run waited
                yield file
                return


def _beside(database: Path) -> Path:
    return database.with_name(database.name + SUFFIX)


def _append(kept: Sequence[Unsaved], database: Path) -> Path:
    """Write the lines beside the database, or, if that folder is gone, to the temporary folder. Returns the file."""
    text = "".join(one.model_dump_json() + "\n" for one in kept)
    places = (_beside(database), Path(tempfile.gettempdir()) / (database.name + SUFFIX))
    for place in places:
        with suppress(OSError), _locked(place, "a") as file:
            _add_whole(file.fileno(), text)
            return place
    raise StoreError(f"neither {places[0]} nor {places[1]} can be written, for {len(kept)} unsaved verdicts")


def _add_whole(descriptor: int, text: str) -> None:
    """Write all of the text or nothing: half a line would stop the run that takes the others over. Raises OSError."""
    size, left = os.fstat(descriptor).st_size, memoryview(text.encode())
    try:
        while left:
            left = left[os.write(descriptor, left) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise
