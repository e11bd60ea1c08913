"""The options of a grading. The command line, `Grader` and the server all use `GraderOptions`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from grader.errors import UserError, plainly
from grader.verdict.models import Device, Settings, TimeLimits
from grader.verdict.precision import Precision
from grader.verdict.value import Value

QUICK_SECONDS, FULL_SECONDS = 3.0, 15.0
"""Default of the option `seconds`, with `quick` and without."""
AUTO = "auto"
"""The device that suits each submission."""
SandboxChoice = Literal["auto", "bubblewrap", "weak"]


def device_choices() -> tuple[str, ...]:
    """Values of the option `device`."""
    return (AUTO, *(device.value for device in Device))


class GraderOptions(Value):
    """Options of a grading. A field's docstring is the help text of its option on the command line."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    device: str = AUTO
    """auto: the device that the submission is written for."""
    device_index: Annotated[int, Field(ge=0)] = 0
    """Which of several GPUs, counted from 0 among those that CUDA_VISIBLE_DEVICES shows."""
    variant: str | None = None
    """Grade only this variant; such verdicts are not ranked."""
    quick: bool = False
    """Fewer rounds of correctness and timing."""
    seconds: Annotated[float | None, Field(gt=0)] = None
    """About how long the checks and the timing of a submission may take, without its build; 3 with --quick, else 15. A
    slow problem gets fewer checks, drawn at random, and the verdict names the others. Verdicts that are already stored
    need --regrade."""
    sandbox: SandboxChoice = "auto"
    """weak: without bubblewrap; the verdict says so."""
    precision: Precision = Precision.FP32
    """Precision of model and floating inputs, on both sides. fp32: judged with TensorFloat-32 off; tf32: float32
    tensors, TensorFloat-32 allowed in products; bf16, fp16: converted to that type. Each has boards of its own."""
    strict_fp32: bool = False
    """Time candidate and reference with TensorFloat-32 off; with --precision fp32 only."""
    baselines: bool = False
    """Also time torch.compile of the reference, default and max-autotune: on a GPU at most 35 s of compiling, then
    some seconds of timing, once for each problem and machine. Verdicts that are already stored need --regrade."""
    build_cache: Path | None = None
    """Where compiled extensions are kept; without it ~/.cache/grader/builds."""
    limits: TimeLimits = TimeLimits()
    """How long a submission may take, in seconds."""

    @property
    def budget(self) -> float:
        """`seconds`, or its default."""
        return self.seconds or (QUICK_SECONDS if self.quick else FULL_SECONDS)

    @field_validator("device")
    @classmethod
    def _known_device(cls, device: str) -> str:
        if device not in (choices := device_choices()):
            raise ValueError(f"unknown device {device!r}; choose {', '.join(choices)}")
        return device

    @model_validator(mode="after")
    def _strict_is_of_fp32(self) -> GraderOptions:
        if fault := self._fault_of(self.precision):
            raise ValueError(fault)
        return self

    def _fault_of(self, precision: Precision) -> str | None:
        strict = self.strict_fp32 and precision is not Precision.FP32
        return f"--strict-fp32 is for --precision fp32; with {precision} leave it out" if strict else None

    def precision_of(self, wanted: Precision | None) -> Precision:
        """The precision of a submission that wants this one, or any.

        Raises UserError for one that `strict_fp32` does not allow.
        """
        precision = wanted or self.precision
        if fault := self._fault_of(precision):
            raise UserError(fault)
        return precision

    def replace(self, **changes: Any) -> GraderOptions:
        """A copy with other values. Raises UserError for an unknown option or a value of the wrong type."""
        try:
            return GraderOptions(**{**dict(self), **changes})
        except ValidationError as error:
            first = error.errors()[0]
            name = ".".join(map(str, first["loc"]))
            if first["type"] == "extra_forbidden":
                known = ", ".join(GraderOptions.model_fields)
                raise UserError(f"unknown option {name!r}; the options are {known}") from None
            raise UserError(f"option {name!r}: {plainly(first['msg'])}") from None

    def settings(self, device: Device, precision: Precision | None = None) -> Settings:
        """The stored settings of a verdict on `device`; `precision` replaces that of the options."""
        return Settings(
            device=device,
            variant=self.variant,
            quick=self.quick,
            sandbox=self.sandbox,
            strict_fp32=self.strict_fp32,
            precision=precision or self.precision,
        )


COMMAND_LINE_OPTIONS = tuple(name for name in GraderOptions.model_fields if name != "limits")
"""The fields that are options of `grader grade`."""


def flag(name: str) -> str:
    """`--strict-fp32` for `strict_fp32`."""
    return f"--{name.replace('_', '-')}"
