"""Next steps for a correct submission, from its measurements, the most rewarding step first."""

from __future__ import annotations

from collections.abc import Iterator

from grader.verdict.labels import LABELS
from grader.verdict.models import Verdict
from grader.verdict.rewards import NO_KERNEL
from grader.verdict.stages import Baseline, FigureTiming, TimingResult

NEAR_THE_BOUND = 0.9
"""Share of the roofline bound from which on little is left: the bound is a low estimate. A choice."""


def next_steps(verdict: Verdict) -> Iterator[str]:
    """Sentences without foreign text."""
    for label in verdict.labels:
        if label in NO_KERNEL:
            yield f"Its reward is 0 for the label {label}: {LABELS[label]} Compute with a kernel of your own."
    timing = verdict.timing
    whole = None if timing is None else timing.total or timing.forward
    if timing is None or whole is None:
        yield "It was not timed, so there is nothing to say about its speed."
        return
    yield from _slower_half(timing)
    yield from _bound(whole)
    yield from _kernels(verdict)
    yield from _compiled(timing, whole)


def _slower_half(timing: TimingResult) -> Iterator[str]:
    if timing.forward is None or timing.backward is None:
        return
    halves = {"forward": timing.forward, "backward": timing.backward}
    slower, faster = sorted(halves, key=lambda name: halves[name].speedup)
    one, other = halves[slower], halves[faster]
    if one.ci_high < other.ci_low:
        share = one.candidate_ms / (one.candidate_ms + other.candidate_ms)
        yield (
            f"Work on the {slower}: it is {one.speedup:.2f}x as fast as eager PyTorch, the {faster} "
            f"{other.speedup:.2f}x, and it takes {share:.0%} of the time of both."
        )


def _bound(whole: FigureTiming) -> Iterator[str]:
    if not whole.bound_ms:
        return
    share = whole.bound_ms / whole.candidate_ms
    figures = f"It takes {whole.candidate_ms:.3g} ms; this device's roofline bound is {whole.bound_ms:.3g} ms"
    if share >= NEAR_THE_BOUND:
        yield f"{figures}: {share:.0%} is reached, and little is left to gain."
    else:
        yield f"{figures}: {share:.2g} of it is reached. Move less memory, fuse passes over the same data, call less."


def _kernels(verdict: Verdict) -> Iterator[str]:
    """The first kernel's share, and the number of launches. Names of kernels are foreign text and shown elsewhere."""
    first = verdict.kernels[0] if verdict.kernels else None
    if first is None:
        return
    if first.share is not None:
        yield f"The first kernel of the profile takes {first.share:.0%} of the device's time; start there."
    calls = sum(kernel.calls for kernel in verdict.kernels)
    if len(verdict.kernels) > 1:
        yield (
            f"One forward and backward makes {calls} calls of {len(verdict.kernels)} kernels or operators; fuse those "
            "that read what the one before wrote."
        )


def _compiled(timing: TimingResult, whole: FigureTiming) -> Iterator[str]:
    eager = next((one for one in timing.baselines if one.name == "eager"), None)
    for one in timing.baselines if eager else ():
        baseline_ms, eager_ms = _milliseconds(one, timing), eager and _milliseconds(eager, timing)
        if one is not eager and baseline_ms and eager_ms and whole.speedup * baseline_ms < eager_ms:
            yield (
                f"torch.compile ({one.name}) is {eager_ms / baseline_ms:.2f}x as fast as eager PyTorch, the submission "
                f"{whole.speedup:.2f}x: fuse at least as much as it does."
            )
            return


def _milliseconds(baseline: Baseline, timing: TimingResult) -> float | None:
    return baseline.total_ms if timing.total else baseline.forward_ms
