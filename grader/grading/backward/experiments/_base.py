"""The registry of backward experiments, and how they compare gradients."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from grader.executor import JobResult
from grader.grading.candidate.candidate import Candidate
from grader.grading.candidate.vjp import Answer, product, product_job
from grader.grading.compare import scaling, tolerance
from grader.grading.compare.scaling import REDUCED_PRECISION
from grader.grading.messages import said_of_eval
from grader.grading.oracle.case import Case
from grader.verdict.codes import CODES
from grader.verdict.models import Diagnosis

Mode = Literal["train", "eval"]
Purpose = Literal["cause", "post-check"]
"""`cause`: runs when a product is wrong, to explain it. `post-check`: runs when all products are right, as all do."""


@dataclass(frozen=True)
class ExperimentCases:
    """The cases that experiments run on: one variant and mode, other inputs and parameters."""

    first: Case
    second: Callable[[], Case]
    """Another draw; the first again where a further one takes too long."""
    others: Callable[[], Sequence[object]]
    """Inputs unlike those of `second`, for forwards in between."""
    keeps_outputs: bool
    """The reference's next forward leaves the previous output as it was."""
    seconds: float
    """Time for the parts of one experiment that are as many as there is time for."""
    outputs_may_change: Callable[[Case], bool] = lambda _: False
    """Whether the reference's backward of a case does not need its outputs (`oracle/capabilities.py`)."""
    alone: Callable[[Case], Mapping[str, Case]] = lambda _: {}
    """A case with the grad_output of each output alone, by the output's name (`oracle/each_output.py`)."""
    eval_cases: ExperimentCases | None = None
    """The same cases in eval(), for a reference that does the same in both modes. An experiment asks both, in one job
    where it can: a submission may tell the modes apart."""

    @classmethod
    def of_one(cls, case: Case, seconds: float) -> ExperimentCases:
        """Cases for experiments on one case, which has no other draws."""
        inputs = case.inputs
        return cls(case, lambda: case, others=lambda: inputs, keeps_outputs=False, seconds=seconds)

    @property
    def modes(self) -> tuple[ExperimentCases, ...]:
        """These cases, then those in eval() if the reference does the same there."""
        return (self,) if self.eval_cases is None else (self, self.eval_cases)

    def in_each_mode(self, check: Callable[[ExperimentCases], Diagnosis | None]) -> Diagnosis | None:
        """The first diagnosis of a check that is made in each of the `modes`."""
        found = ((mode, check(mode)) for mode in self.modes)
        return next((self.of_mode(mode, one) for mode, one in found if one is not None), None)

    def of_mode(self, mode: ExperimentCases, diagnosis: Diagnosis | None) -> Diagnosis | None:
        """The diagnosis of one of the `modes`."""
        return diagnosis if diagnosis is None or mode is self else said_of_eval(diagnosis)


Function = Callable[[Candidate, ExperimentCases], Diagnosis | None]


@dataclass(frozen=True)
class Experiment:
    """A run that a right gradient passes and a plausible mistake does not."""

    code: str
    """The code of its diagnosis, and its name in a verdict."""
    question: str
    remedy: str
    """The general remedy, for a worker that is lost during the experiment."""
    run: Function
    rank: int
    """Lasting experiments run first, and each kind by ascending rank: those that explain what later ones would see
    come first."""
    train_only: bool
    """It is not asked in eval()."""
    explains: bool
    """It is asked when a product is wrong, too, to explain it."""
    lasting: bool
    """An error that it finds ends the experiments: it leaves state behind, changes from call to call, or is in the
    values that later experiments compare with, so that they would misread it."""
    weight: float
    """In the draw where time is short: above 1 for a mistake that kernels are known for."""


_EXPERIMENTS: dict[str, Experiment] = {}


def experiment(
    code: str,
    *,
    question: str,
    remedy: str,
    rank: int,
    train_only: bool = False,
    explains: bool = False,
    lasting: bool = False,
    weight: float = 1.0,
) -> Callable[[Function], Function]:
    """Register a function as an experiment. It returns a diagnosis, or None if all is well.

    A step that raises gets the experiment's own code, since the plain product of the same case ran.
    """

    def register(function: Function) -> Function:
        assert code in CODES, f"{code} is not in grader.verdict.codes"
        assert code not in _EXPERIMENTS, f"{code} has an experiment already"
        assert rank not in {other.rank for other in _EXPERIMENTS.values()}, f"rank {rank} is taken"
        _EXPERIMENTS[code] = Experiment(code, question, remedy, function, rank, train_only, explains, lasting, weight)
        return function

    return register


def experiments(purpose: Purpose, mode: Mode) -> tuple[Experiment, ...]:
    """The experiments of a purpose and mode, in the order in which they run."""
    chosen = (one for one in _EXPERIMENTS.values() if one.explains or purpose == "post-check")
    chosen = (one for one in chosen if not one.train_only or mode == "train")
    return tuple(sorted(chosen, key=lambda one: (not one.lasting, one.rank)))


def first_wrong(
    candidate: Candidate,
    case: Case,
    result: JobResult,
    *,
    key: str = "a",
    only: Collection[str] | None = None,
    factor: float = 1.0,
) -> str | None:
    """Display name of the first operand, of these `only`, whose gradient times `factor` is wrong."""
    name = next(wrong_operands(candidate, case, result, key=key, only=only, factor=factor), None)
    return None if name is None else case.operand_names[name]


def wrong_operands(
    candidate: Candidate,
    case: Case,
    result: JobResult,
    *,
    key: str = "a",
    only: Collection[str] | None = None,
    factor: float = 1.0,
) -> Iterator[str]:
    """Names of the operands whose gradients, times `factor`, are not the reference's."""
    actual, compared = product(candidate, case, result, key).gradients, dict[str, tolerance.Pair]()
    for name, expected in case.gradients.items():
        if expected is None or (only is not None and name not in only):
            continue
        gradient = actual[name]
        if gradient is None:
            if not expected.is_zero:
                yield name
        elif case.comparable("gradients", name):
            compared[name] = expected, gradient if factor == 1.0 else gradient * factor
    checks = tolerance.check_each(list(compared.values()))
    yield from (name for name, check in zip(compared, checks, strict=True) if check.status == "failed")


def changed_operands(
    candidate: Candidate, case: Case, answer: Answer, control: Answer, *, factor: float = 1.0
) -> list[str]:
    """Names of the operands whose gradients times `factor` are not the control's, but for rounding."""
    ours, plain = (present(product(candidate, case, *one).gradients) for one in (answer, control))
    both = [name for name in ours if name in plain]
    changes = scaling.changes([plain[name] for name in both], [factor * ours[name] for name in both])
    equal = {name for name, change in zip(both, changes, strict=True) if change <= REDUCED_PRECISION}
    found = ours.keys() | plain.keys()
    return [name for name in case.wrt if name in found - equal and case.comparable("gradients", name)]


def present(gradients: Mapping[str, torch.Tensor | None]) -> dict[str, torch.Tensor]:
    """Those that are not None."""
    return {name: value for name, value in gradients.items() if value is not None}


def plain_is_right(candidate: Candidate, case: Case) -> bool:
    """Whether the product for a contiguous grad_output is right, as it was last seen. Raises Stopped."""
    if case not in candidate.plain_right:
        result = candidate.attempt(product_job(candidate, case), "backward", "backward with a contiguous grad_output")
        note_plain(candidate, case, result, "a")
    return candidate.plain_right[case]


def note_plain(candidate: Candidate, case: Case, result: JobResult, key: str) -> bool:
    """Remember whether this plain product is right."""
    right = result.failure is None and first_wrong(candidate, case, result, key=key) is None
    candidate.plain_right[case] = right
    return right
