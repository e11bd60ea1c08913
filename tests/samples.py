"""Hand-made values for tests: what a grading would return, without a grading."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from grader.verdict.models import Device, Diagnosis, Environment, Problem, Settings, Status, Submission, Verdict
from grader.verdict.profiles import PassLines, Profile, SideProfile
from grader.verdict.stages import (
    BackwardResult,
    BuildResult,
    FigureTiming,
    ForwardResult,
    StageStatus,
    TensorCheck,
    TimingResult,
)

PROBLEM_SOURCE = """\
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * self.weight


def get_inputs():
    return [torch.randn(4, 8)]


def get_init_inputs():
    return [8]
"""

SUBMISSION_SOURCE = """\
from torch import nn


class ModelNew(nn.Module):
    pass
"""

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def problem(problem_id: str = "scale", source: str = PROBLEM_SOURCE, path: Path | None = None) -> Problem:
    return Problem(id=problem_id, path=path or Path(f"/problems/{problem_id}.py"), source=source)


def submission(
    author: str = "ann",
    problem_id: str = "scale",
    label: str | None = None,
    source: str = SUBMISSION_SOURCE,
    **fields: Any,
) -> Submission:
    path = f"submissions/{author}/{problem_id}.py"
    return Submission(author=author, problem_id=problem_id, label=label, path=path, source=source, **fields)


def environment(device: Device = Device.CPU, device_name: str = "a CPU", **fields: Any) -> Environment:
    return Environment(
        device=device,
        device_name=device_name,
        torch_version="2.13.0",
        compiler="g++ 12.2.0",
        python_version="3.11.7",
        grader_version="0.1.0",
        sandbox="bubblewrap",
        sandbox_layers=("namespaces", "seccomp"),
        **fields,
    )


def phase(speedup: float, margin: float = 0.9, **fields: Any) -> FigureTiming:
    return FigureTiming(
        candidate_ms=1.0,
        reference_ms=speedup,
        speedup=speedup,
        ci_low=speedup * margin,
        ci_high=speedup / margin,
        rounds=8,
        **fields,
    )


def profile(subject: Submission | None = None, **fields: Any) -> Profile:
    """A profile whose sides took a millisecond each."""
    subject = subject or submission()
    side = SideProfile(forward=PassLines(ms=1.0, calls=1))
    return Profile(
        **{
            "submission": subject.name,
            "problem": subject.problem_id,
            "device": Device.CPU,
            "device_name": "a CPU",
            "variant": "full",
            "source_hash": subject.source_hash,
            "problem_hash": problem().source_hash,
            "created_at": NOON,
            "grader_version": "0.1.0",
            "candidate": side,
            "reference": side,
            **fields,
        }
    )


def verdict(
    subject: Submission | None = None,
    status: Status = Status.CORRECT,
    problem_source: str = PROBLEM_SOURCE,
    where: Environment | None = None,
    settings: Settings | None = None,
    total: float | None = 2.0,
    forward_speedup: float | None = 3.0,
    minute: int = 0,
    **fields: Any,
) -> Verdict:
    """A verdict whose stages agree with its status."""
    subject = subject or submission()
    where = where or environment()
    settings = settings or Settings(device=where.device)
    right_forward = status in (Status.CORRECT, Status.MISSING_BACKWARD, Status.WRONG_BACKWARD)
    right_backward = status is Status.CORRECT
    stages: dict[str, Any] = {
        "build": BuildResult(status=StageStatus.PASSED, seconds=1.5, log_tail="[1/2] c++ main.o\n[2/2] c++ main.so"),
        "forward": ForwardResult(status=StageStatus.PASSED if right_forward else StageStatus.FAILED),
        "backward": BackwardResult(
            status=StageStatus.PASSED if right_backward else StageStatus.FAILED,
            gradients=(
                TensorCheck(name="x", status="passed", rel_rms_error=1e-7),
                TensorCheck(
                    name="weight",
                    status="passed" if right_backward else "missing",
                    rel_rms_error=2e-7 if right_backward else None,
                    worst_index=(3,) if right_backward else None,
                    message=None if right_backward else "autograd gave no gradient for it",
                ),
            ),
        ),
        "timing": TimingResult(
            status=StageStatus.PASSED,
            variant="full",
            forward=phase(forward_speedup) if forward_speedup else None,
            total=phase(total) if total and right_backward else None,
        ),
    }
    diagnosis = Diagnosis(code="output_wrong", stage="forward", message="The output is wrong; look at index (0, 3).")
    return Verdict(
        submission=subject.name,
        author=subject.author,
        label=subject.label,
        sample=subject.sample,
        problem=subject.problem_id,
        device=where.device,
        status=status,
        environment=where,
        settings=settings,
        source_hash=subject.source_hash,
        problem_hash=problem(source=problem_source).source_hash,
        created_at=NOON + timedelta(minutes=minute),
        **{"diagnoses": () if status is Status.CORRECT else (diagnosis,), **stages, **fields},
    )
