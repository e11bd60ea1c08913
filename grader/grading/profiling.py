"""Profiles a submission beside its reference, kernel by kernel: no verdict comes of it.

What the workers report is a claim. The referee adds the reference's work and the roofline bounds, which it knows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from grader import protocol as p
from grader._version import __version__
from grader.catalog.requests import Request
from grader.errors import ProblemError
from grader.executor import JobBuilder
from grader.grading import build, plan
from grader.grading.builds_ahead import BuildsAhead
from grader.grading.oracle import capabilities
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL
from grader.grading.oracle.oracle import Oracle
from grader.grading.resources import Resources
from grader.grading.stopped import Stopped
from grader.grading.timing.roofline import bound_ms, counted_work, narrow_operands
from grader.machine.backends import backend
from grader.options import GraderOptions
from grader.verdict.models import Device
from grader.verdict.profiles import (
    Amount,
    KernelLine,
    OperatorLine,
    PassLines,
    PeakRates,
    Profile,
    SideProfile,
)

Bound = Callable[[Sequence[p.Work]], float]
"""Least milliseconds of some work."""


def profile(resources: Resources, builds: BuildsAhead, options: GraderOptions, request: Request) -> Profile:
    """Both sides on the same inputs of the variant that is timed. Raises Stopped, ProblemError, UserError."""
    build.require_precision(request)
    device, precision = request.device, request.precision
    if backend(device).builds_apart:
        builds.get(request)
    oracle = resources.oracle(request.problem, device, precision)
    case = oracle.case(plan.variants(oracle, options.variant)[-1])
    peaks = resources.roofline.peaks(oracle, narrow_operands(case))
    tf32 = not options.strict_fp32

    def bound(works: Sequence[p.Work]) -> float:
        return bound_ms(works, peaks, device, tf32=tf32, everywhere=precision.meaning.tf32)

    work = counted_work(oracle, case)
    reference = _side(_of_reference(oracle, case, tf32), work, bound)
    oracle.release()
    constructor = oracle.models.constructed_under
    with resources.candidate(request.submission, device, precision, reference_constructor=constructor) as candidate:
        job = candidate.script(case)
        _survey(job, device, case, candidate.wrt(case), tf32)
        try:
            surveyed = candidate.run(job, "timing", "profiling its kernels").of(p.Surveyed)[0]
        except Stopped as stopped:
            surveyed = p.Surveyed(trouble=stopped.diagnosis.message)
    return Profile(
        submission=request.submission.name,
        problem=request.problem.id,
        device=device,
        device_name=backend(device).device_name(),
        precision=precision,
        variant=case.variant,
        source_hash=request.submission.source_hash,
        problem_hash=request.problem.source_hash,
        created_at=datetime.now(UTC),
        grader_version=__version__,
        peaks=PeakRates(bytes=peaks.bytes, float32=peaks.float32, tf32=peaks.tf32, narrow=peaks.narrow),
        candidate=_side(surveyed, work, bound),
        reference=reference,
    )


def _of_reference(oracle: Oracle, case: Case, tf32: bool) -> p.Surveyed:
    job = capabilities.script(oracle, case)
    _survey(job, oracle.device, case, case.wrt, tf32)
    try:
        surveyed: p.Surveyed = oracle.process.run(job).of(p.Surveyed)[0]
    except ProblemError as error:
        return p.Surveyed(trouble=str(error))
    return surveyed


def _survey(job: JobBuilder, device: Device, case: Case, wrt: tuple[str, ...], tf32: bool) -> None:
    """Give the inputs, and ask for the kernels of a forward and, with something to differentiate, a backward."""
    job.put_inputs("t", case.inputs, requires_grad=bool(wrt))
    how = {"model": MODEL, "tf32": tf32, "flush_bytes": backend(device).flush_bytes()}
    forward, backward = p.TimedPart(**case.timed("forward" if wrt else "inference", **how)), None
    if wrt:
        backward = p.TimedPart(**case.timed("backward", cotangents=job.cotangents(case.cotangents), wrt=wrt, **how))
    job.step(p.Survey(forward=forward, backward=backward))
    job.step(p.Drop())


def _side(surveyed: p.Surveyed, work: p.Counted, bound: Bound) -> SideProfile:
    needed: Mapping[str, p.Work | None] = {"forward": work.forward, "backward": work.backward}
    passes = {name: _pass(getattr(surveyed, name), needed[name], bound) for name in needed}
    return SideProfile(**passes, trouble=surveyed.trouble)


def _pass(claimed: p.Pass | None, work: p.Work | None, bound: Bound) -> PassLines | None:
    if claimed is None:
        return None
    return PassLines(
        ms=claimed.ms,
        calls=claimed.calls,
        work=None if work is None else _amount(work, bound),
        kernels=tuple(_kernel(one, bound) for one in claimed.kernels),
        operators=tuple(
            OperatorLine(**one.model_dump(exclude={"work"}), work=_amount(one.work, bound)) for one in claimed.operators
        ),
    )


def _kernel(one: p.Launched, bound: Bound) -> KernelLine:
    return KernelLine(**one.model_dump(exclude={"work"}), work=None if one.work is None else _amount(one.work, bound))


def _amount(work: p.Work, bound: Bound) -> Amount:
    return Amount(
        bytes=work.read_bytes + work.written_bytes,
        operations=work.matmul + work.convolution + work.pointwise,
        bound_ms=bound([work]),
    )
