"""Values that identify a candidate's parameters: under equal seeds, and after load_state_dict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

from grader import protocol as p
from grader.executor import JobBuilder, JobResult, TensorSpec, WorkerClient
from grader.grading.compare.value_matching import Values
from grader.grading.oracle.case import Case
from grader.verdict.models import Device

Constructor = Callable[[Case, int, bool], Mapping[str, torch.Tensor]]
"""The reference's parameters and buffers in the case's sizes, constructed under a seed, on the device or on the CPU."""


class Runner(Protocol):
    """Anything that runs jobs in the candidate's worker."""

    worker: WorkerClient
    device: Device

    def attempt(self, job: JobBuilder, stage: str, doing: str) -> JobResult:
        """The job's result, or its failure."""
        ...


def values_alike(
    runner: Runner,
    key: str,
    tensors: Sequence[p.TensorInfo],
    seeded: Mapping[str, torch.Tensor],
    *,
    loads: bool,
) -> list[Values]:
    """Values of both sides that should agree, the most reliable first.

    `seeded` are the reference's under the seed of the candidate's new model, whose worker has it under `key`. With
    `loads`, random values of the reference's are loaded into that model too: its hooks may map a state dict. Raises
    Stopped when the worker is lost.
    """
    specs = _specs(tensors, sum(value.nbytes for value in seeded.values()))
    job = JobBuilder(runner.worker, runner.device)
    job.export({f"state:{key}:{name}": spec for name, spec in specs.items()})
    result = runner.attempt(job, "load", "reading parameters as constructed")
    values = [Values(seeded, _by_name(result, key, specs))]
    if loads:
        drawn = {name: _random(value) for name, value in seeded.items()}
        job = JobBuilder(runner.worker, runner.device)
        job.load_state(key, drawn)
        job.export({f"state:{key}:{name}": spec for name, spec in specs.items()})
        result = runner.attempt(job, "load", "loading a state dict of the reference")
        if result.failure is None:
            values.insert(0, Values(drawn, _by_name(result, key, specs)))
    return values


def _specs(tensors: Sequence[p.TensorInfo], most: int) -> dict[str, TensorSpec]:
    """The tensors that can be compared: dense, together at most twice the reference's bytes."""
    specs, room = {}, 2 * most
    for info in tensors:
        if info.kind == "tensor" and isinstance(getattr(torch, info.dtype or "", None), torch.dtype):
            spec = TensorSpec.of(info)
            room -= spec.nbytes
            if room >= 0:
                specs[info.name] = spec
    return specs


def _by_name(result: JobResult, key: str, specs: Mapping[str, TensorSpec]) -> dict[str, torch.Tensor]:
    found = {name: result.sealed.get(f"state:{key}:{name}") for name in specs}
    return {name: value for name, value in found.items() if value is not None}


def _random(value: torch.Tensor) -> torch.Tensor:
    """Other values of a float tensor, no two alike; other tensors as they are."""
    return torch.randn_like(value) if value.is_floating_point() or value.is_complex() else value
