"""What the grader talks about: problems, submissions, and verdicts with their parts.

All values are frozen. Two verdicts are equal when every field is equal; identity in the database is `verdict_id`.
Absent is `None`, never -1 or NaN. Times are in milliseconds where the name ends in `_ms`, else in seconds.
"""

from __future__ import annotations

import hashlib
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1
"""Version of the verdict's JSON form; raised when a field changes its meaning or goes away."""


class Value(BaseModel):
    """A frozen record that refuses unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=True, ser_json_inf_nan="strings")


class Status(StrEnum):
    """The first question that a submission failed, or `correct`."""

    INVALID_SUBMISSION = "invalid_submission"
    """Not a gradable file: no ModelNew, a syntax error, a constructor that does not take the problem's arguments."""
    BUILD_ERROR = "build_error"
    """A compiler or linker refused an extension."""
    RUNTIME_ERROR = "runtime_error"
    """It raised while being imported, constructed or run."""
    CRASHED = "crashed"
    """Its process died: a segmentation fault, an abort, an exit."""
    TIMEOUT = "timeout"
    """It gave no answer within the time that a build, a constructor or a call may take."""
    OUT_OF_MEMORY = "out_of_memory"
    """It used more memory than the device has or the sandbox allows."""
    WRONG_OUTPUT = "wrong_output"
    """The forward does not match, or an output of a timed call does not."""
    MISSING_BACKWARD = "missing_backward"
    """The forward matches; some gradient that the reference has does not exist."""
    WRONG_BACKWARD = "wrong_backward"
    """The forward matches and every gradient exists; some gradient is wrong."""
    INTEGRITY_VIOLATION = "integrity_violation"
    """Caught reaching around the grader."""
    CORRECT = "correct"
    """All of it matches."""
    NOT_RUN = "not_run"
    """It needs a device that is not here, or its problem cannot be graded. Never a pass, never a fail."""
    GRADER_ERROR = "grader_error"
    """Our fault. Never counted against the submission."""


class StageStatus(StrEnum):
    PASSED = "passed"
    """What was asked was so."""
    FAILED = "failed"
    """It was not, and a diagnosis says why."""
    SKIPPED = "skipped"
    """Not reached because an earlier stage failed, or not gradable for this problem."""


class Device(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


class Problem(Value):
    """A reference to match: a file with `Model`, `get_inputs` and `get_init_inputs`."""

    id: str
    """The file's stem."""
    path: Path
    source: str = Field(repr=False)

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source, hexadecimal."""
        return digest(self.source)


class Submission(Value):
    """A candidate file with `ModelNew`, as it came."""

    author: str
    label: str | None = None
    """What stands behind `__` in the file's name, if anything."""
    problem_id: str
    path: str
    source: str = Field(repr=False)
    sample: int | None = None
    """Which of several samples by the same author for the same problem (KernelBench's `sample_S`)."""
    unreadable: str | None = None
    """Why the file cannot be graded at all (empty, not UTF-8, too large), in one sentence; the source is then empty."""

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source, hexadecimal."""
        return digest(self.source)

    @property
    def name(self) -> str:
        """`author/problem_id` or `author/problem_id__label`."""
        return f"{self.author}/{self.problem_id}" + (f"__{self.label}" if self.label else "")


class Diagnosis(Value):
    """One sentence that tells an author what to change, under a stable code."""

    code: str
    """A code of `grader.verdict.codes`."""
    stage: Literal["load", "build", "forward", "backward", "timing", "integrity"]
    message: str
    """Subject, numbers and remedy in one sentence."""
    severity: Literal["error", "warning", "info"] = "error"
    detail: dict[str, object] = {}


class BuildResult(Value):
    """What the compilers said."""

    status: StageStatus
    seconds: float | None = None
    cached: bool = False
    """The extensions came from the build cache."""
    log_tail: str = ""
    extensions: tuple[str, ...] = ()
    """Names of the extensions that were compiled, in order."""


class TensorCheck(Value):
    """One tensor of the candidate beside the float64 reference."""

    name: str
    """`output`, `output[1]`, `x`, `conv.weight`, ..."""
    status: Literal["passed", "failed", "missing", "not_checked"]
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    max_abs_error: float | None = None
    rel_rms_error: float | None = None
    """||candidate - reference|| / ||reference||, in the Euclidean norm over all elements."""
    yardstick_rel_rms_error: float | None = None
    """The same figure for float32 eager PyTorch, the worst of several runs on inputs perturbed by rounding errors."""
    worst_index: tuple[int, ...] | None = None
    worst_candidate: float | None = None
    worst_reference: float | None = None
    passes_1e_4: bool | None = None
    """|candidate - reference| <= 1e-4 (1 + |reference|) everywhere, for comparison with other harnesses."""
    passes_1e_2: bool | None = None
    """The same with 1e-2, the tolerance that KernelBench used first."""
    message: str | None = None


class VariantResult(Value):
    """One variant of the problem (one set of sizes), one draw of inputs."""

    variant: str
    status: StageStatus
    seed: int
    """From the operating system's entropy, written down afterwards so that a failure can be replayed."""
    tensors: tuple[TensorCheck, ...] = ()


class ForwardResult(Value):
    status: StageStatus
    variants: tuple[VariantResult, ...] = ()
    max_abs_error: float | None = None
    rel_rms_error: float | None = None
    passes_1e_4: bool | None = None
    passes_1e_2: bool | None = None
    seconds: float | None = None


class BackwardResult(Value):
    status: StageStatus
    gradients: tuple[TensorCheck, ...] = ()
    """One row an operand: its worst check over all variants."""
    variants: tuple[VariantResult, ...] = ()
    experiments: tuple[str, ...] = ()
    """Names of the experiments that were run beside the plain vector-Jacobian products."""
    peak_device_bytes: int | None = None
    """Peak of device memory of all processes together until the end of this stage; GPU only."""
    seconds: float | None = None


class PhaseTiming(Value):
    """One phase's time beside the reference's, on the same inputs, interleaved in one run."""

    candidate_ms: float
    reference_ms: float
    speedup: float
    """exp(median over pairs of log(reference / candidate))."""
    ci_low: float
    """Lower end of the 95% interval over pairs; this ranks."""
    ci_high: float
    bound_ms: float | None = None
    """Speed of light: no implementation can be faster on this device."""
    verdict: Literal["faster", "slower", "same", "inconclusive"] = "inconclusive"
    rounds: int
    candidate_samples_ms: tuple[float, ...] = ()
    reference_samples_ms: tuple[float, ...] = ()
    clock: Literal["worker", "referee"] = "worker"
    """Whose figure is given: the worker's claim where it agrees with the referee's clock, else the referee's."""


class ClockReading(Value):
    """What the device said of itself beside one round of timing; GPU only."""

    round: int
    sm_mhz: int
    memory_mhz: int
    throttle_reasons: tuple[str, ...] = ()
    """NVML's names, `sw_power_cap` for one; a round with one that slows the clocks is dropped."""


class Baseline(Value):
    """One more way of running the reference, timed on the same device: what a speedup over eager does not tell."""

    name: Literal["eager", "compile", "compile_max_autotune"]
    """`compile_max_autotune` is torch.compile(mode="max-autotune-no-cudagraphs")."""
    forward_ms: float
    total_ms: float | None = None
    """Forward and backward together."""


class TimingResult(Value):
    status: StageStatus
    variant: str | None = None
    forward: PhaseTiming | None = None
    backward: PhaseTiming | None = None
    total: PhaseTiming | None = None
    """Forward and backward together: the ranking figure."""
    clocks: tuple[ClockReading, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    """The reference compiled, where that was measured in this environment."""


class KernelUse(Value):
    """One kernel (on the CPU: one operator) that a profiler saw in a forward and backward that nobody timed."""

    name: str
    calls: int
    share: float | None = None
    """Of the device's time in that pass, 0 to 1."""


class Environment(Value):
    """Where a verdict was reached; its hash tells whether a stored verdict still holds."""

    device: Device
    device_name: str
    torch_version: str
    cuda_version: str | None = None
    driver_version: str | None = None
    compiler: str
    python_version: str
    grader_version: str
    sandbox: str
    sandbox_layers: tuple[str, ...] = ()
    thread_count: int | None = None
    """CPU threads of each worker."""

    @property
    def environment_hash(self) -> str:
        """SHA-256 over all fields, hexadecimal."""
        return digest(self.model_dump_json())


class Settings(Value):
    """What the user asked for; part of what makes a stored verdict reusable."""

    device: Device
    variant: str | None = None
    """Grade this variant only."""
    quick: bool = False
    sandbox: Literal["auto", "bubblewrap", "weak"] = "auto"
    strict_fp32: bool = False
    """Time with TF32 off on both sides."""

    @property
    def settings_hash(self) -> str:
        """SHA-256 over all fields, hexadecimal."""
        return digest(self.model_dump_json())


class TimeLimits(Value):
    """How long a submission may take before it is stopped, in seconds."""

    build: float = 600.0
    """Import, with whatever it compiles."""
    construction: float = 300.0
    """ModelNew(...), which may compile too."""
    call: float = 120.0
    """One job: a handful of forwards and backwards."""


class StageSeconds(Value):
    """Where the wall time of one grading went, in seconds."""

    build: float = 0.0
    start: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    timing: float = 0.0
    inspection: float = 0.0


class Verdict(Value):
    """The answer to all four questions about one submission."""

    schema_version: int = SCHEMA_VERSION
    verdict_id: int | None = None
    """Given by the database."""
    submission: str
    """`Submission.name`."""
    author: str
    label: str | None = None
    sample: int | None = None
    problem: str
    device: Device
    status: Status
    diagnoses: tuple[Diagnosis, ...] = ()
    """Errors first, the cause before what follows from it."""
    labels: tuple[str, ...] = ()
    """What informs and does not reject: `no_custom_kernel`, `torch_fallback`, ..."""
    kernels: tuple[KernelUse, ...] = ()
    """By share, largest first."""
    build: BuildResult | None = None
    forward: ForwardResult | None = None
    backward: BackwardResult | None = None
    timing: TimingResult | None = None
    seconds: StageSeconds = StageSeconds()
    peak_device_bytes: int | None = None
    """Peak of device memory of all processes of this grading together; GPU only."""
    environment: Environment
    settings: Settings
    source_hash: str
    problem_hash: str
    created_at: datetime

    @model_validator(mode="after")
    def _status_fits_the_stages(self) -> Verdict:
        if self.status is Status.CORRECT:
            if self.forward is None or self.forward.status is not StageStatus.PASSED:
                raise ValueError("a correct verdict needs a passed forward stage")
            if self.backward is not None and self.backward.status is StageStatus.FAILED:
                raise ValueError("a correct verdict cannot carry a failed backward stage")
        elif self.status in (Status.MISSING_BACKWARD, Status.WRONG_BACKWARD):
            if self.forward is None or self.forward.status is not StageStatus.PASSED:
                raise ValueError(f"{self.status} says that the forward passed")
            if self.backward is None or self.backward.status is not StageStatus.FAILED:
                raise ValueError(f"{self.status} says that the backward failed")
        elif self.status not in (Status.NOT_RUN,) and not self.diagnoses:
            raise ValueError(f"{self.status} needs a diagnosis that says why")
        return self


def digest(text: str) -> str:
    """SHA-256 of a text in UTF-8, hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()
