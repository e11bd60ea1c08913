"""Problems, submissions, and the verdict on a submission.

All values are frozen. Two verdicts are equal when every field is equal; `verdict_id` identifies one in a database.
An absent value is `None`, never -1 or NaN. Times are in milliseconds where the name ends in `_ms`, else in seconds.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import Literal

from pydantic import Field, model_validator

from grader.verdict.precision import Precision
from grader.verdict.stages import (
    BackwardResult,
    BuildResult,
    ForwardResult,
    KernelUse,
    StageSeconds,
    StageStatus,
    TimingResult,
)
from grader.verdict.value import Value, digest

SCHEMA_VERSION = 1
"""Version of the verdict's JSON form; raised when a field changes its meaning or is removed."""


class Status(StrEnum):
    """The first question that a submission failed, or `correct`."""

    INVALID_SUBMISSION = "invalid_submission"
    """Not a gradable file: no ModelNew, a syntax error, a constructor that does not take the problem's arguments."""
    BUILD_ERROR = "build_error"
    """A compiler or linker refused an extension."""
    RUNTIME_ERROR = "runtime_error"
    """It raised while it was imported, constructed or run."""
    CRASHED = "crashed"
    """Its process died: a segmentation fault, an abort, an exit."""
    TIMEOUT = "timeout"
    """It gave no answer within the time limit of a build, a constructor or a call."""
    OUT_OF_MEMORY = "out_of_memory"
    """It used more memory than the device has or the sandbox allows."""
    WRONG_OUTPUT = "wrong_output"
    """The forward, or an output of a timed call, does not match the reference."""
    MISSING_BACKWARD = "missing_backward"
    """The forward matches; a gradient that the reference has does not exist."""
    WRONG_BACKWARD = "wrong_backward"
    """The forward matches and every gradient exists; a gradient is wrong."""
    INTEGRITY_VIOLATION = "integrity_violation"
    """It tried to get around the grader."""
    CORRECT = "correct"
    """Outputs and gradients match the reference."""
    NOT_RUN = "not_run"
    """It needs a device that this machine lacks, or its problem cannot be graded. Neither a pass nor a failure."""
    GRADER_ERROR = "grader_error"
    """The grader itself failed. Never counted against the submission."""


SAYS_NOTHING = (Status.GRADER_ERROR, Status.NOT_RUN)
"""The statuses of verdicts that do not count."""


class Device(StrEnum):
    """Kind of device that submissions run on: one for each module in `grader/machine/backends/`."""

    CPU = "cpu"
    CUDA = "cuda"

    @classmethod
    def add(cls, name: str) -> Device:
        """The member of this name, which is a new one if there is none yet."""
        if name not in cls._value2member_map_:
            member = str.__new__(cls, name)
            member._name_, member._value_ = name.upper(), name
            cls._member_names_.append(member._name_)
            cls._member_map_[member._name_] = cls._value2member_map_[name] = member
        return cls(name)

    @classmethod
    def _missing_(cls, value: object) -> Device | None:
        """A member that was added after pydantic had listed the members."""
        member = cls._value2member_map_.get(value)
        return member if isinstance(member, cls) else None


for _path in sorted((Path(__file__).parents[1] / "machine" / "backends").glob("[a-z]*.py")):
    Device.add(_path.stem)


class Problem(Value):
    """A reference to match: Python source with `Model`, `get_inputs` and `get_init_inputs`."""

    id: str
    """Its name, or `group/name` where several problems have that name."""
    path: Path
    source: str = Field(repr=False)
    """As its format translates it; of KernelBench's format, the file."""
    format: str = "kernelbench"
    """Name of its problem format, a key of `grader.catalog.formats.FORMATS`."""

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source, hexadecimal."""
        return digest(self.source)


class Submission(Value):
    """A candidate file with `ModelNew`, as it was submitted."""

    author: str
    label: str | None = None
    """The part of the file's name behind `__`, if there is one."""
    problem_id: str
    path: str
    source: str = Field(repr=False)
    sample: int | None = None
    """Number among several samples by the same author for the same problem (KernelBench's `sample_S`)."""
    unreadable: str | None = None
    """Why the file cannot be graded at all (empty, not UTF-8, too large), in one sentence; the source is then empty."""
    format: str = "kernelbench"
    """Format of its problem: it names the class or function that is graded."""
    precision: Precision | None = None
    """The precision to grade it in; None: that of the options."""

    @property
    def source_hash(self) -> str:
        """SHA-256 of the source, hexadecimal."""
        return digest(self.source)

    @property
    def name(self) -> str:
        """`author/problem_id` or `author/problem_id__label`."""
        return f"{self.author}/{self.problem_id}" + (f"__{self.label}" if self.label else "")


StageName = Literal["load", "build", "forward", "backward", "timing", "integrity"]
"""What a diagnosis is about: a stage of a grading, loading the submission, or a breach of the rules."""


class Diagnosis(Value):
    """One sentence that says what to change, under a stable code."""

    code: str
    """A key of `grader.verdict.codes.CODES`."""
    stage: StageName
    message: str
    """What is wrong, where, by how much, and the remedy, in one sentence."""
    severity: Literal["error", "warning", "info"] = "error"
    detail: dict[str, object] = Field(default_factory=dict)


NO_DEVICE = "none"
"""The `device_name` of an `Environment` whose machine lacks the device."""
PLACE = {"host", "device_id"}
"""Fields of `Environment` that tell one machine or device from another of the same kind."""


class Environment(Value):
    """Machine and versions of a grading; a stored verdict is reused only if all fields but `PLACE` match."""

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
    host: str | None = None
    """Name of the machine."""
    device_id: str | None = None
    """UUID of the GPU."""

    @property
    def environment_hash(self) -> str:
        """SHA-256 over all fields but `PLACE`, hexadecimal."""
        return digest(self.kind_json)

    @property
    def kind_json(self) -> str:
        """JSON of all fields but `PLACE`."""
        return self.model_dump_json(exclude=PLACE)


SHARES_OF_ROWS = ("half", "quarter")
"""The variant of verdicts on so many rows of the inputs, where the device's memory is too short for all."""


class Settings(Value):
    """The user's settings; a stored verdict is reused only for the same ones."""

    device: Device
    variant: str | None = None
    """Grade this variant only."""
    quick: bool = False
    sandbox: Literal["auto", "bubblewrap", "weak"] = "auto"
    strict_fp32: bool = False
    """Time with TensorFloat-32 off on both sides."""
    precision: Precision = Precision.FP32

    @property
    def settings_hash(self) -> str:
        """SHA-256 over all fields, hexadecimal; without fp32, the precision of verdicts that name none."""
        return digest(self.model_dump_json(exclude={"precision"} if self.precision is Precision.FP32 else None))

    @property
    def of_fewer_rows(self) -> tuple[Settings, ...]:
        """The settings that a verdict has instead if memory is too short for all rows."""
        shares = SHARES_OF_ROWS if self.variant is None else ()
        return tuple(self.model_copy(update={"variant": share}) for share in shares)


class TimeLimits(Value):
    """Seconds that a submission, and what is compared with it, may take before it is stopped."""

    build: float = 600.0
    """Import, including compilation."""
    construction: float = 300.0
    """ModelNew(...), which may compile too."""
    call: float = 120.0
    """One job: a few forwards and backwards."""
    baselines: float = 35.0
    """Compiling the reference for `GraderOptions.baselines`, until a search for kernels is ended. Timing it takes some
    seconds more; without a search, compiling may take as long as a build."""


class Verdict(Value):
    """The result of grading one submission: build, forward, backward and speed."""

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
    """Errors first, a cause before its consequences."""
    labels: tuple[str, ...] = ()
    """Labels that inform and do not reject: `no_custom_kernel`, `torch_fallback`, ..."""
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

    def renamed(self, submission: Submission) -> Verdict:
        """The verdict on the same source under another submission's names, not stored yet."""
        names = {"author": submission.author, "label": submission.label, "sample": submission.sample}
        return self.model_copy(update={"submission": submission.name, **names, "verdict_id": None})

    @model_validator(mode="after")
    def _status_fits_the_stages(self) -> Verdict:
        if self.status is Status.CORRECT:
            if self.forward is None or self.forward.status is not StageStatus.PASSED:
                raise ValueError("a correct verdict needs a passed forward stage")
            if self.backward is not None and self.backward.status is StageStatus.FAILED:
                raise ValueError("a correct verdict cannot have a failed backward stage")
        elif self.status in (Status.MISSING_BACKWARD, Status.WRONG_BACKWARD):
            if self.forward is None or self.forward.status is not StageStatus.PASSED:
                raise ValueError(f"{self.status} needs a passed forward stage")
            if self.backward is None or self.backward.status is not StageStatus.FAILED:
                raise ValueError(f"{self.status} needs a failed backward stage")
        elif self.status is not Status.NOT_RUN and not self.diagnoses:
            raise ValueError(f"{self.status} needs a diagnosis")
        return self
