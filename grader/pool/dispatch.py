"""Hands requests to places, and to another place when one is lost, so that none is lost."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import count
from typing import Any, NoReturn

from grader.catalog.requests import Request
from grader.errors import DeviceError, GraderError, NotGraded
from grader.pool.fair import FairQueue
from grader.pool.place import Place, PlaceLost, PlaceState, Ready, StartFailed
from grader.pool.task import Task
from grader.verdict.models import Device, Environment, Settings, Verdict
from grader.verdict.profiles import Profile

MOST_LOSSES = 2
"""Processes that end while they grade one submission until it counts as `crashed`: one may have ended by chance."""
MOST_FAILURES = 3
"""Lives without a verdict after which a place is set aside. A choice."""
POLL_SECONDS = 0.5
"""Longest wait for an answer before the queue and the clock are looked at again."""


class Dispatcher:
    """A thread for each place; all take requests from one queue. Any thread may call the methods."""

    def __init__(
        self,
        places: Sequence[Place],
        settings: Callable[[Request], Settings],
        say: Callable[[str], None],
        *,
        hang_seconds: float,
        limit_seconds: float | None = None,
    ) -> None:
        """`settings` are those of a request's verdict; `say` prints a line for the user.

        A place that gives no answer for `hang_seconds` is lost. A request that takes `limit_seconds` is not graded.
        """
        self._settings, self._say = settings, say
        self._hang_seconds, self._limit_seconds = hang_seconds, limit_seconds
        self._places = {place.name: place for place in places}
        self._states = {name: PlaceState(name=name) for name in self._places}
        self._ready: dict[str, Ready] = {}
        """The report of each place that has ever started."""
        self._waiting = FairQueue[Task]()
        self._numbers = count(1)
        self._held: dict[str, deque[Task]] = {name: deque() for name in self._places}
        """By place, the tasks that were handed to it and are not answered; it grades the first of them."""
        self._changed = threading.Condition()
        self._failure: GraderError | None = None
        """Why nothing can be graded any more."""
        self._threads = [threading.Thread(target=self._serve, args=(place,), daemon=True) for place in places]
        for thread in self._threads:
            thread.start()

    def submit(self, request: Request, priority: int = 0) -> Future[Any]:
        """The verdict or the profile to come; cancelled before its turn, it is not begun. Raises GraderError."""
        with self._changed:
            if self._failure is not None:
                raise self._failure
            task = Task(next(self._numbers), request, priority)
            self._waiting.put(task, task.author, priority)
            self._changed.notify_all()
        return task.future

    def stop(self, unwanted: Callable[[Request], bool]) -> None:
        """Cancel what waits, and end what is held at its next job: its future raises Cancelled."""
        with self._changed:
            waiting = self._waiting.remove(lambda task: unwanted(task.request))
            held = [
                (self._places[name], task)
                for name, tasks in self._held.items()
                for task in tasks
                if unwanted(task.request)
            ]
            for _, task in held:
                task.unwanted = True
        for task in waiting:
            task.cancel()
        for place, task in held:
            place.stop(task.number)

    def environments(self, device: Device) -> tuple[Environment, ...]:
        """The environments of verdicts on a device: one for each kind of machine; waits for the first place.

        Raises GraderError if no place starts.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._failure)
            if self._failure is not None:
                raise self._failure
            found = [ready.environments[device] for ready in self._ready.values()]
        return tuple({environment.environment_hash: environment for environment in found}.values())

    def states(self) -> tuple[PlaceState, ...]:
        """All places as they are now."""
        with self._changed:
            return tuple(self._states.values())

    def close(self) -> None:
        """End all places. What has no verdict yet raises GraderError to its caller."""
        self._give_up(GraderError("the pool was closed before this verdict; make a new one to grade again"))
        while any(thread.is_alive() for thread in self._threads):
            for place in self._places.values():
                place.end()
            for thread in self._threads:
                thread.join(POLL_SECONDS)

    # ------------------------------------------------------------------------------------- the thread of a place

    def _serve(self, place: Place) -> None:
        failures = 0
        while not self._ended():
            before, final, late = self._states[place.name].graded, False, False
            self._note(place, state="starting", process=None)
            try:
                self._begin(place)
                self._feed(place)
            except StartFailed as error:
                reason, final = str(error), error.final
            except PlaceLost as lost:
                reason, late = str(lost), lost.late
                self._take_back(place, lost)
            except GraderError as error:
                self._give_up(error)
                break
            except Exception as error:
                reason = f"{type(error).__name__}: {error}"
                self._take_back(place, PlaceLost(reason, external=True))
            if self._ended():
                break
            place.end()
            failures = 0 if late or self._states[place.name].graded > before else failures + 1
            if final or failures >= MOST_FAILURES:
                self._set_aside(place, reason)
                break
        place.end()

    def _begin(self, place: Place) -> None:
        """Raises StartFailed, and a GraderError where no place has ever started."""
        try:
            ready = place.start()
        except GraderError as error:
            if not self._ready:
                raise
            raise StartFailed(str(error)) from error  # others could start: it is this place's own
        with self._changed:
            self._ready[place.name] = ready
            self._note(place, state="ready", process=ready.process)
            self._changed.notify_all()

    def _feed(self, place: Place) -> NoReturn:
        """Hand over requests and take answers until the place is lost or the pool closes, which PlaceLost says."""
        held, since = self._held[place.name], time.monotonic()
        while True:
            while (task := self._take(place)) is not None:
                since = since if len(held) > 1 else time.monotonic()
                place.send(task.number, task.request)
            if self._ended():
                raise PlaceLost("the pool closes", external=True)
            answer = place.receive(POLL_SECONDS)
            if answer is not None:
                self._settle(place, *answer)
                since = time.monotonic()
            elif self._limit_seconds is not None and held and time.monotonic() - since > self._limit_seconds:
                raise PlaceLost(f"stopped after {self._limit_seconds:g} s", external=True, late=True)
            elif time.monotonic() - since > self._hang_seconds:
                raise PlaceLost(f"gave no answer for {self._hang_seconds:.0f} s")

    def _take(self, place: Place) -> Task | None:
        """The next request for a place, which holds it from now on.

        Waits for it if the place holds none; None if it holds enough, or when the pool closes.
        """
        held, suits = self._held[place.name], partial(self._suits, place)
        with self._changed:
            if not held:
                self._changed.wait_for(lambda: self._failure or any(map(suits, self._waiting)))
            elif len(held) >= place.depth or len(self._waiting) <= self._idle():
                return None
            while self._failure is None and (task := self._waiting.take(suits)) is not None:
                if task.begin():
                    held.append(task)
                    self._note(place, under_way=held[0].request.submission.name)
                    return task
            return None if self._failure or held else self._take(place)

    def _suits(self, place: Place, task: Task) -> bool:
        """Whether it was not lost there, unless there is no other place."""
        others = any(state.state != "set aside" for name, state in self._states.items() if name != place.name)
        return place.name not in task.lost_at or not others

    def _idle(self) -> int:
        """Places that wait for a request, or will: they come before those that would only prepare for it."""
        return sum(state.state != "set aside" and state.under_way is None for state in self._states.values())

    def _settle(self, place: Place, number: int, answer: Verdict | Profile | Exception) -> None:
        held = self._held[place.name]
        task = held[0]
        if number != task.number:
            raise PlaceLost(f"answered request {number} instead of {task.number}", external=True)
        with self._changed:
            held.popleft()
            under_way = held[0].request.submission.name if held else None
            self._note(place, graded=self._states[place.name].graded + 1, under_way=under_way)
        if isinstance(answer, Exception):
            task.future.set_exception(answer)
        else:
            task.future.set_result(answer)

    def _take_back(self, place: Place, lost: PlaceLost) -> None:
        """Put what the place held back at the head of the queue, but for what ends with the place.

        Tasks that nobody wants any more end too.
        """
        with self._changed:
            self._note(place, state="starting", process=None, under_way=None)
            held, self._held[place.name] = self._held[place.name], deque()
            last = self._ended_with(place, held, lost)
            wanted = [task for task in held if not task.unwanted]
            failure = self._failure
            if failure is None:
                for task in reversed(wanted):
                    self._waiting.put_back(task, task.author, task.priority)
            self._changed.notify_all()
        for task in held:
            if task.unwanted:
                task.cancel()
            elif failure is not None:
                task.future.set_exception(failure)
        if last is not None:
            self._conclude(place, last, lost)

    def _ended_with(self, place: Place, held: deque[Task], lost: PlaceLost) -> Task | None:
        """The task in hand, taken out, if it took too long, or has ended as many processes as one may."""
        if not held or (lost.external and not lost.late):
            return None
        if not lost.late:
            held[0].losses.append(f"{place.name} {lost}")
            held[0].lost_at.add(place.name)
        return held.popleft() if lost.late or len(held[0].losses) >= MOST_LOSSES else None

    def _conclude(self, place: Place, task: Task, lost: PlaceLost) -> None:
        """End a task that no other place gets."""
        request = task.request
        if lost.late:
            task.future.set_exception(NotGraded(f"{lost}, which is the limit for one grading here"))
        elif request.profiled:
            task.future.set_exception(NotGraded(f"it ended {len(task.losses)} processes; grade it to see how"))
        else:
            environment = self._ready[place.name].environments[request.device]
            task.future.set_result(task.crashed(self._settings(request), environment))

    # ------------------------------------------------------------------------------------------------- all places

    def _set_aside(self, place: Place, reason: str) -> None:
        with self._changed:
            self._note(place, state="set aside", process=None, under_way=None, reason=reason)
            left = [state for state in self._states.values() if state.state != "set aside"]
            self._changed.notify_all()
        self._say(f"{place.name} is set aside: {reason}; {len(left)} of {len(self._states)} are left")
        if not left:
            reasons = "; ".join(sorted({state.reason or "" for state in self._states.values()}))
            self._give_up(DeviceError(f"nothing is left to grade on: {reasons}; mend it, and run the same again"))

    def _give_up(self, failure: GraderError) -> None:
        with self._changed:
            self._failure = self._failure or failure
            waiting = self._waiting.remove(lambda _: True)
            self._changed.notify_all()
        for task in waiting:
            if task.begin():
                task.future.set_exception(failure)

    def _ended(self) -> bool:
        return self._failure is not None

    def _note(self, place: Place, **changes: object) -> None:
        with self._changed:
            self._states[place.name] = self._states[place.name].model_copy(update=changes)
