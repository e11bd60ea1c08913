"""Places on a Ray cluster: an actor for each GPU, with the same process as on a single host.

A node needs the package and nothing else: problems travel with their sources, and only the driver writes verdicts.
"""

from __future__ import annotations

import logging
import queue
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from grader.catalog.requests import Request
from grader.errors import UserError, reason
from grader.machine.backends import accelerators, backend
from grader.options import AUTO, GraderOptions
from grader.pool.host import CORES_A_WORKER, hidden_accelerators, turns_file
from grader.pool.local import START_SECONDS, ProcessPlace
from grader.pool.messages import Answer, GradeOrder, Setup, Trouble
from grader.pool.place import PlaceLost, Ready, StartFailed
from grader.pool.ray_builds import BuildTasks, keep_bundle
from grader.verdict.models import Device, Verdict
from grader.verdict.profiles import Profile

ANSWER_SECONDS = 10.0
"""For the head node to accept a connection. A choice."""
GRACE_SECONDS = 30.0
"""Time for an answer from a node beyond the call itself. A choice."""
MOST_AHEAD = 8
"""Most requests that a place holds beyond the one in hand, so that CPUs of the cluster build for them. A choice."""
NODE_DIED = "node has died"
"""Part of Ray's message for an actor that ended with its node."""

log = logging.getLogger(__name__)


def ray_places(ray: Any, options: GraderOptions, address: str, workers: int | None, engine: str) -> list[RayPlace]:
    """A place for each GPU of the cluster, or `workers` on its CPUs. Raises UserError."""
    total: Mapping[str, float] = ray.cluster_resources()
    cpus, gpus = int(total.get("CPU", 0)), int(total.get("GPU", 0))
    accelerator = next(iter(accelerators()), None) if options.device == AUTO else Device(options.device)
    on_gpus = workers is None and gpus > 0 and accelerator is not None and not backend(accelerator).on_host
    device = accelerator if on_gpus and accelerator is not None else Device.CPU
    if device is Device.CPU and options.device not in (AUTO, Device.CPU.value):
        raise UserError(f"--ray {address}: the cluster has no GPU for --device {options.device}; use --device cpu")
    count = gpus if on_gpus else max(1, cpus // CORES_A_WORKER) if workers is None else workers
    if count < 1:
        raise UserError(f"--workers {count}: use at least 1")
    setup = Setup(engine=engine, options=options, device=device)
    needs = {"num_gpus": 1, "num_cpus": 1} if on_gpus else {"num_gpus": 0, "num_cpus": 1}
    ahead = min(MOST_AHEAD, max(1, cpus // 2 // count)) if on_gpus else 1
    builds = BuildTasks(ray, options) if on_gpus else None
    kind = "Ray GPU" if on_gpus else "Ray worker"
    return [RayPlace(ray, f"{kind} {number + 1}", setup, needs, ahead + 1, builds) for number in range(count)]


def connect(address: str) -> tuple[Any, Callable[[], None]]:
    """The module `ray`, connected to a cluster, and what ends a connection made here. Raises UserError."""
    try:
        import ray
    except ImportError:
        raise UserError("--ray needs Ray; install it with `pip install '.[ray]'` in the grader's checkout") from None
    if ray.is_initialized():
        return ray, lambda: None
    _require_answer(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise UserError(
            f"--ray {address}: no cluster there ({reason(error)}); start one with `ray start --head`"
        ) from error
    return ray, ray.shutdown


def _require_answer(address: str) -> None:
    """Raise UserError if nothing listens at HOST:PORT; Ray takes minutes to find out."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"--ray {address}: no cluster there ({reason}); start one with `ray start --head`") from error


class RemotePlace:
    """The actor: a `ProcessPlace` on its node. Its methods return lines of JSON."""

    def __init__(self, setup: str, depth: int) -> None:
        given = Setup.model_validate_json(setup).model_copy(update={"turns": str(turns_file())})
        seen = {} if given.device is not Device.CPU else hidden_accelerators()
        self._place, self._options = ProcessPlace("here", given, seen, depth), given.options
        self._arriving: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._hand_over, daemon=True).start()

    def start(self) -> str:
        """An `Answer` with `ready`, or why never. Raises PlaceLost if another start may help."""
        try:
            return Answer(ready=self._place.start()).model_dump_json(exclude_none=True)
        except StartFailed as failed:
            if not failed.final:
                raise PlaceLost(str(failed)) from failed
            return Answer(device_fault=str(failed)).model_dump_json(exclude_none=True)
        except Exception as error:
            return Answer(trouble=Trouble.of(error)).model_dump_json(exclude_none=True)

    def send(self, line: str, bundle: list[Any]) -> None:
        """Add work, with the build that it comes with, if any."""
        self._arriving.put((line, bundle))

    def stop(self, number: int) -> None:
        """Have a request end at its next job."""
        self._place.stop(number)

    def receive(self, seconds: float) -> str | None:
        """The next `Answer`; None if there is none yet. Raises PlaceLost."""
        answer = self._place.receive(seconds)
        return None if answer is None else Answer.of(*answer).model_dump_json(exclude_none=True)

    def _hand_over(self) -> None:
        """The requests in the order of arrival, each after its build."""
        while True:
            line, bundle = self._arriving.get()
            work = GradeOrder.model_validate_json(line)
            for one in bundle:
                try:
                    keep_bundle(one, work.request.submission, self._options)
                except Exception as error:  # this thread goes on, or the place would fall silent; it builds itself
                    log.warning(
                        "the build of %s is not kept: %s: %s", work.request.submission.name, type(error).__name__, error
                    )
            with suppress(PlaceLost):  # `receive` says so
                self._place.send(work.number, work.request)


class RayPlace:
    """The driver's side of a `RemotePlace`."""

    def __init__(
        self, ray: Any, name: str, setup: Setup, needs: Mapping[str, float], depth: int, builds: BuildTasks | None
    ) -> None:
        self.name, self.depth, self.device = name, depth, setup.device
        self._ray, self._setup, self._needs, self._builds = ray, setup, dict(needs), builds
        self._actor: Any = None

    def start(self) -> Ready:
        """Raises StartFailed, UserError, SandboxUnavailable."""
        # Several calls at a time: one waits for an answer while others hand over work and stop it.
        made = self._ray.remote(RemotePlace).options(max_concurrency=4, max_restarts=0, **self._needs)
        self._actor = actor = made.remote(self._setup.model_dump_json(), self.depth)
        try:
            answer = Answer.model_validate_json(self._get(actor.start.remote(), 2 * START_SECONDS))
        except PlaceLost as lost:
            raise StartFailed(str(lost)) from lost
        return answer.started()

    def send(self, number: int, request: Request) -> None:
        """Raises PlaceLost."""
        actor = self._alive()
        bundle = [] if self._builds is None else self._builds.start(request)
        line = GradeOrder(number=number, request=request).model_dump_json()
        self._get(actor.send.remote(line, bundle), GRACE_SECONDS)

    def receive(self, seconds: float) -> tuple[int, Verdict | Profile | Exception] | None:
        """Raises PlaceLost."""
        line = self._get(self._alive().receive.remote(seconds), seconds + GRACE_SECONDS)
        if line is None:
            return None
        return Answer.model_validate_json(line).result()

    def stop(self, number: int) -> None:
        """Have a request that it holds end at its next job."""
        actor = self._actor
        if actor is not None:
            with suppress(Exception):  # `receive` says so
                actor.stop.remote(number)

    def end(self) -> None:
        """Kill the actor; its process ends when the actor's end of the pipe does."""
        actor, self._actor = self._actor, None
        if actor is not None:
            with suppress(Exception):  # the cluster may be gone
                self._ray.kill(actor, no_restart=True)

    def _alive(self) -> Any:
        if self._actor is None:
            raise PlaceLost("was ended", external=True)
        return self._actor

    def _get(self, reference: Any, seconds: float) -> Any:
        """The result of a call. Raises PlaceLost."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=seconds)
        except errors.GetTimeoutError as error:
            self._ray.cancel(reference)
            raise PlaceLost(f"its node gave no answer for {seconds:.0f} s", external=True) from error
        except errors.RayTaskError as error:
            if isinstance(error.cause, PlaceLost):
                raise error.cause from error
            raise PlaceLost(f"failed: {type(error.cause).__name__}: {error.cause}", external=True) from error
        except errors.RayActorError as error:
            died = NODE_DIED in str(error) or not isinstance(error, errors.ActorDiedError)
            raise PlaceLost("lost its node" if died else "its actor ended", external=died) from error
        except errors.RayError as error:
            raise PlaceLost(f"cannot be reached ({type(error).__name__})", external=True) from error
