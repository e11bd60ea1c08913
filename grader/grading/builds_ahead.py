"""Compiles extensions before their submission's turn, several at a time, if the device permits it.

Where there is no GPU, it says which kernels were compiled, and which would be at their first launch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import partial

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from grader import protocol as p
from grader.catalog.problem_module import FULL, load_problem
from grader.catalog.requests import Request
from grader.errors import Cancelled, ProblemError
from grader.executor import interrupt
from grader.grading import build
from grader.grading.messages import MAX_QUOTED
from grader.grading.resources import Resources
from grader.machine.backends import backend
from grader.machine.host import builds_at_a_time
from grader.verdict.models import Submission
from grader.verdict.stages import BuildResult

LATER_NICENESS = 10
"""Niceness (setpriority(2)) of builds of submissions that are not yet graded: about a tenth of the CPU share of
everything else."""
AT_THE_LAUNCH = {
    "torch_compile": "torch.compile",
    "cupy": "CuPy",
    "numba": "Numba",
    "cute": "the CuTe DSL",
    "tilelang": "TileLang",
}
"""Languages whose compilers ask the GPU, at the first launch."""


class BuildsAhead:
    """Builds that are started and not yet collected, of several batches."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self.at_a_time = builds_at_a_time()
        self._pool = ThreadPoolExecutor(self.at_a_time)
        self._started: dict[str, Future[build.Built]] = {}

    def close(self) -> None:
        """Give up what has not begun; what is under way ends with the workers."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    @contextmanager
    def ahead(self) -> Iterator[Callable[[Request], None]]:
        """While inside, a function that starts builds of one batch; what is not done at the end is given up.

        What has begun is waited for, but not by who interrupts the grading: its processes are about to be ended. Nor
        by a batch that ends with Cancelled: the next one takes over what it wants of it.
        """
        batch: dict[str, Future[build.Built]] = {}
        waits = True
        try:
            yield partial(self._start, batch)
        except (KeyboardInterrupt, SystemExit, Cancelled):
            waits = False
            raise
        finally:
            left = [started for started in batch.values() if not started.cancel()]
            wait(left if waits else ())
            over = [started for started in batch.values() if started.done()]
            self._started = {key: started for key, started in self._started.items() if started not in over}

    def _start(self, batch: dict[str, Future[build.Built]], request: Request) -> None:
        """Build in the background, unless it is kept or under way.

        Only for a device that builds apart and is available: without a GPU, CPU times need the cores.
        """
        own = backend(request.device)
        if not (own.builds_apart and own.available()):
            return
        submission, key = request.submission, request.submission.source_hash
        if key not in self._started and self._resources.cache.get(submission) is None:
            niceness = LATER_NICENESS if self._started else 0
            started = self._pool.submit(self._resources.build_apart, submission, request.device, niceness=niceness)
            self._started[key] = batch[key] = started

    def under_way(self, submission: Submission) -> bool:
        """Whether the build of this submission has begun and not ended."""
        started = self._started.get(submission.source_hash)
        return started is not None and not started.done()

    def get(self, request: Request) -> BuildResult | None:
        """The build's result, made now unless it was started; None if a kept build serves.

        Raises Stopped, and Interrupted once nobody wants the verdict any more; the build goes on.
        """
        submission = request.submission
        started = self._started.pop(submission.source_hash, None)
        if started is not None:
            return interrupt.result(started).result
        if not backend(request.device).available():
            ahead = [step for step in (step_for(request),) if step is not None]
            return self._resources.build_apart(submission, request.device, ahead=ahead).result
        if self._resources.cache.get(submission) is None:
            return self._resources.build_apart(submission, request.device).result
        return None


def step_for(request: Request) -> p.CompileAhead | None:
    """The step that compiles Triton kernels for a problem's first sizes; None if there are none.

    The problem's inputs are drawn as fake tensors, which cost no memory. None if that fails.
    """
    if "triton" not in request.languages:
        return None
    try:
        variants = load_problem(request.problem).variants
        variant = next((one for name, one in variants.items() if name != FULL), variants[FULL])
        with FakeTensorMode():
            return p.CompileAhead(
                init_inputs=p.encode_value(list(variant.make_init_inputs())),
                inputs=tuple(map(_described, variant.make_inputs())),
            )
    except (ProblemError, TypeError, RuntimeError):
        return None


def _described(value: object) -> p.FakeInput:
    if isinstance(value, torch.Tensor):
        return p.FakeInput(shape=tuple(value.shape), dtype=p.dtype_name(value.dtype))
    return p.FakeInput(value=p.encode_value(value))


def what_was_seen(request: Request, built: BuildResult | None) -> str:
    """A line on the build, for a verdict without a GPU."""
    compiled = () if built is None else (*built.extensions, *built.kernels)
    parts = [f"it compiles ({_listed(compiled)})"] if compiled else []
    later = [AT_THE_LAUNCH[language] for language in request.languages if language in AT_THE_LAUNCH]
    if later:
        parts.append(f"{_listed(later)} compile{'s' if len(later) == 1 else ''} at the first call, on the GPU")
    note = "" if built is None else built.not_compiled
    if note:
        parts.append(f"not all of it was compiled: {note[:MAX_QUOTED]}")
    return "; ".join(parts) or "it has no code of its own to compile"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(dict.fromkeys(names))
