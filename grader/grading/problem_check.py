"""Checks whether submissions for a problem can be graded. Models run only in the sandboxed worker."""

from __future__ import annotations

from typing import Literal

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from grader.catalog.problem_module import FULL, load_problem
from grader.errors import GraderError, ProblemError
from grader.executor.launcher import Role
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.soundness import Fault, judge_soundness
from grader.grading.plan import CPU
from grader.grading.resources import Resources
from grader.machine.backends import backend, default_device
from grader.options import SandboxChoice
from grader.verdict.models import Problem
from grader.verdict.value import Value


class ProblemCheck(Value):
    """One line of `grader problems check`."""

    id: str
    path: str
    gradable: bool | None
    """None if it was not tried on this machine."""
    fault: Fault | None = None
    remark: str | None = None


class Checker:
    """Owns the sandbox and the workers. A context manager."""

    def __init__(self, *, sandbox: SandboxChoice = "auto") -> None:
        """Check on the GPU where there is one. Raises SandboxUnavailable where the sandbox does not work."""
        self._device = default_device()
        self._resources = Resources(sandbox)

    def __enter__(self) -> Checker:
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def check(self, problem: Problem, *, more_to_come: bool = False) -> ProblemCheck:
        """Whether submissions for it can be graded. The problem's failures are described, not raised."""
        about = ProblemCheck(id=problem.id, path=str(problem.path), gradable=False)
        try:
            size = _input_bytes(problem)
        except ProblemError as error:
            return about.model_copy(update={"fault": _fault("does_not_load", problem, error)})
        # Larger sizes, such as KernelBench's, are meant for GPUs.
        if backend(self._device).on_host and size > CHECK_BYTES:
            remark = f"not tried: its inputs have {size / (1 << 30):.1f} GiB; check it on a machine with a GPU"
            return about.model_copy(update={"gradable": None, "remark": remark})
        try:
            with self._resources.launcher.take(Role.REFERENCE, self._device, more_to_come=more_to_come) as worker:
                soundness = judge_soundness(Oracle(problem, self._device, worker))
        except ProblemError as error:
            return about.model_copy(update={"fault": _fault("does_not_run", problem, error)})
        except GraderError:
            raise
        except Exception as error:  # get_inputs() is the problem's own code and may raise anything
            return about.model_copy(update={"fault": _fault("does_not_run", problem, error)})
        return about.model_copy(update={"gradable": soundness.fault is None, **dict(soundness)})


def _input_bytes(problem: Problem) -> int:
    """Size of the inputs of the first variant, without allocating them; 0 where that is not possible."""
    variants = load_problem(problem).variants
    first = next((name for name in variants if name not in (FULL, CPU)), CPU if CPU in variants else FULL)
    try:
        with FakeTensorMode():
            inputs = list(variants[first].make_inputs())
    except Exception:  # whatever is wrong is reported when the inputs are made
        return 0
    return sum(value.nbytes for value in inputs if isinstance(value, torch.Tensor))


def _fault(code: Literal["does_not_load", "does_not_run"], problem: Problem, error: Exception) -> Fault:
    first = next(iter(str(error).splitlines()), "")
    reason = first.removeprefix(f"{problem.path}: ") if isinstance(error, ProblemError) else f"it raised {first}"
    return Fault(code=code, reason=reason if first else type(error).__name__)
