"""Results of the stages of a grading: build, forward, backward, timing, and a profile."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from grader.verdict.value import Value


class StageStatus(StrEnum):
    """Outcome of one stage."""

    PASSED = "passed"
    """The stage's check passed."""
    FAILED = "failed"
    """The check failed, and a diagnosis says why."""
    SKIPPED = "skipped"
    """Not reached because an earlier stage failed, or not gradable for this problem."""


class BuildResult(Value):
    """The build: import of the file, with the extensions that it compiles."""

    status: StageStatus
    seconds: float | None = None
    cached: bool = False
    """Whether the extensions came from the build cache."""
    log_tail: str = ""
    extensions: tuple[str, ...] = ()
    """Names of the compiled extensions, in order."""
    kernels: tuple[str, ...] = ()
    """Names of just-in-time kernels that were compiled where there is no GPU."""
    not_compiled: str = ""
    """Why not all kernels were compiled there; empty if nothing prevented it."""
    kernel_files: int | None = None
    """Files that just-in-time compilers (Triton's, Inductor's, CuPy's) added to their caches in this grading. 0 if all
    came from an earlier one; None if grading ended before they were counted."""


class TensorCheck(Value):
    """One tensor of the candidate compared with the float64 reference."""

    name: str
    """`output`, `output[1]`, `x`, `conv.weight`, ..."""
    status: Literal["passed", "failed", "missing", "not_checked"]
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    max_abs_error: float | None = None
    rel_rms_error: float | None = None
    """||candidate - reference|| / ||reference||, in the Euclidean norm over all elements."""
    baseline_rel_rms_error: float | None = None
    """Baseline error: the same for eager PyTorch in this precision, the worst of several runs on perturbed inputs."""
    worst_index: tuple[int, ...] | None = None
    worst_candidate: float | None = None
    worst_reference: float | None = None
    passes_1e_4: bool | None = None
    """|candidate - reference| <= 1e-4 (1 + |reference|) everywhere, for comparison with other harnesses."""
    passes_1e_2: bool | None = None
    """The same with 1e-2, KernelBench's first tolerance."""
    message: str | None = None


class VariantResult(Value):
    """One variant of the problem (one set of sizes), on one draw of inputs."""

    variant: str
    status: StageStatus
    seed: int
    """Drawn from the operating system's entropy; replays a failure."""
    tensors: tuple[TensorCheck, ...] = ()


class ForwardResult(Value):
    """The outputs, over all variants."""

    status: StageStatus
    variants: tuple[VariantResult, ...] = ()
    max_abs_error: float | None = None
    rel_rms_error: float | None = None
    passes_1e_4: bool | None = None
    passes_1e_2: bool | None = None
    seconds: float | None = None


class BackwardResult(Value):
    """The gradients, over all variants."""

    status: StageStatus
    gradients: tuple[TensorCheck, ...] = ()
    """One row per operand: its worst check over all variants."""
    variants: tuple[VariantResult, ...] = ()
    experiments: tuple[str, ...] = ()
    """Names of the experiments that ran besides the plain vector-Jacobian products."""
    peak_device_bytes: int | None = None
    """Peak of device memory of all processes together until the end of this stage; GPU only."""
    seconds: float | None = None


class FigureTiming(Value):
    """Time of a figure (forward, backward or total) and the reference's, interleaved on the same inputs."""

    candidate_ms: float
    reference_ms: float
    speedup: float
    """exp of the trimmed mean over pairs of log(reference / candidate)."""
    ci_low: float
    """Lower end of the 95% interval over pairs; boards rank by it."""
    ci_high: float
    bound_ms: float | None = None
    """Roofline bound (speed of light): no implementation can be faster on this device."""
    verdict: Literal["faster", "slower", "same", "inconclusive"] = "inconclusive"
    rounds: int
    """Rounds of two pairs each; the last may have one."""
    candidate_samples_ms: tuple[float, ...] = ()
    reference_samples_ms: tuple[float, ...] = ()
    clock: Literal["worker", "referee"] = "worker"
    """Whose time is given: the worker's reported time where the referee's clock agrees, else the referee's."""


class ClockReading(Value):
    """The device's clocks during one round of timing; GPU only."""

    round: int
    sm_mhz: int
    memory_mhz: int
    throttle_reasons: tuple[str, ...] = ()
    """NVML's names, such as `sw_power_cap`; a round with a reason that slows the clocks is dropped."""


class Baseline(Value):
    """Another way of running the reference, timed on the same device. Times in milliseconds."""

    name: Literal["eager", "compile", "compile_max_autotune"]
    """`compile_max_autotune` is torch.compile(mode="max-autotune-no-cudagraphs")."""
    forward_ms: float
    backward_ms: float | None = None
    total_ms: float | None = None
    """Forward and backward together."""


class TimingResult(Value):
    """The timing of the full-size variant."""

    status: StageStatus
    variant: str | None = None
    forward: FigureTiming | None = None
    backward: FigureTiming | None = None
    total: FigureTiming | None = None
    """Forward and backward together; the main board ranks by it."""
    clocks: tuple[ClockReading, ...] = ()
    baselines: tuple[Baseline, ...] = ()
    """The reference compiled, where that was measured in this environment."""


class KernelUse(Value):
    """One kernel (on the CPU: one operator) that a profiler saw in an untimed forward and backward."""

    name: str
    calls: int
    share: float | None = None
    """Fraction of the device's time in that pass, 0 to 1."""


class StageSeconds(Value):
    """Wall time of each stage of one grading, in seconds."""

    build: float = 0.0
    start: float = 0.0
    forward: float = 0.0
    backward: float = 0.0
    timing: float = 0.0
    inspection: float = 0.0
