"""Checks whether submissions for a problem can be graded, and whether computing nothing passes.

The reference alone is run, in the sandboxed worker.
"""

from __future__ import annotations

from typing import Literal

from torch._subclasses.fake_tensor import FakeTensorMode

from grader.catalog.problem_module import FULL, load_problem
from grader.errors import GraderError, ProblemError, reason
from grader.executor.launcher import Role
from grader.grading.compare.blocks import CHECK_BYTES
from grader.grading.oracle import variations
from grader.grading.oracle.case import Case, nbytes_of
from grader.grading.oracle.oracle import Oracle
from grader.grading.oracle.values import is_float
from grader.grading.plan import ALWAYS_RANDOM, CPU, variants
from grader.grading.resources import Resources
from grader.machine.backends import backend, default_device
from grader.options import SandboxChoice
from grader.verdict.models import Problem
from grader.verdict.value import Value


class Fault(Value):
    """The reason why a problem cannot be graded."""

    code: Literal["does_not_load", "does_not_run", "no_output", "no_float", "stochastic"]
    reason: str


class ProblemCheck(Value):
    """One line of `grader problems check`."""

    id: str
    path: str
    gradable: bool | None
    """None if it was not tried on this machine."""
    fault: Fault | None = None
    remark: str | None = None
    """What is not graded, and why; or what passes without computing anything."""


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
                fault, remarks = _judge_problem(Oracle(problem, self._device, worker))
        except ProblemError as error:
            return about.model_copy(update={"fault": _fault("does_not_run", problem, error)})
        except GraderError:
            raise
        except Exception as error:  # get_inputs() is the problem's own code and may raise anything
            return about.model_copy(update={"fault": _fault("does_not_run", problem, error)})
        found = {"gradable": fault is None, "fault": fault, "remark": "; ".join(remarks) or None}
        return about.model_copy(update=found)


def _judge_problem(oracle: Oracle) -> tuple[Fault | None, list[str]]:
    """The fault and the remarks, from several draws of the first variant with the same parameters.

    Raises ProblemError if the reference fails.
    """
    name = variants(oracle)[0]
    case, remarks = oracle.case(name), list[str]()
    if not case.values_comparable:
        case = oracle.case(name, training=False)
        remarks.append("random in train(): values are compared in eval() only")
        if not case.values_comparable:
            return Fault(code="stochastic", reason=f"it {ALWAYS_RANDOM}"), []
    fault = _unusable(case)
    if not case.wrt:
        remarks.append("there is nothing to differentiate: the forward alone is graded")
    trivial = variations.trivial_outputs(oracle, case) if fault is None else None
    return fault, [*remarks, *([trivial] if trivial else [])]


def _unusable(case: Case) -> Fault | None:
    """Why the case cannot be graded, or None."""
    if not case.returns_tensor:
        return Fault(code="no_output", reason="it returns no tensor")
    if not any(map(is_float, (*case.inputs, *case.state.values()))):
        return Fault(code="no_float", reason="there is no float input or parameter, so nothing can be differentiated")
    return None


def _input_bytes(problem: Problem) -> int:
    """Size of the inputs of the first variant, without allocating them; 0 where that is not possible."""
    sizes = load_problem(problem).variants
    first = next((name for name in sizes if name not in (FULL, CPU)), CPU if CPU in sizes else FULL)
    try:
        with FakeTensorMode():
            inputs = list(sizes[first].make_inputs())
    except Exception:  # whatever is wrong is reported when the inputs are made
        return 0
    return nbytes_of(inputs)


def _fault(code: Literal["does_not_load", "does_not_run"], problem: Problem, error: Exception) -> Fault:
    first = reason(error)
    why = first.removeprefix(f"{problem.path}: ") if isinstance(error, ProblemError) else f"it raised {first}"
    return Fault(code=code, reason=why)
