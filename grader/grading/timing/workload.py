"""Facts about the reference's work: its amount, length of kernels and error, and the device's peaks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import torch

from grader import protocol as p
from grader.grading.compare import blocks
from grader.grading.compare.blocks import is_large
from grader.grading.compare.narrow_types import is_narrow
from grader.grading.oracle import questions
from grader.grading.oracle.case import Case
from grader.grading.oracle.evaluation import MODEL, Pass
from grader.grading.oracle.fewer_rows import ROWS, WHOLE
from grader.grading.oracle.oracle import Oracle, remembered
from grader.machine.backends import backend


@remembered
def shipped_error(oracle: Oracle, case: Case, *, tf32: bool) -> Mapping[str, float]:
    """Relative error of eager PyTorch by tensor name; `tf32` allows TensorFloat-32 in cuDNN, its default."""
    if oracle.has_fewer_rows and case.variant in WHOLE:
        return shipped_error(oracle, oracle.case(ROWS, training=case.training), tf32=tf32)
    plain = Pass.of(case)
    passes = [replace(plain, tf32=tf32)]
    counted, everywhere = work(oracle, case).forward, oracle.precision.meaning.tf32
    if tf32 and backend(oracle.device).tf32 and (counted.convolution or (everywhere and counted.matmul)):
        # cuDNN may have taken float32 for the reference's convolutions and take TensorFloat-32 for the same ones in
        # other groups or another layout. The flags allow it: operands rounded to TensorFloat-32 show its error.
        passes.append(plain.in_tf32())
    errors: dict[str, float] = {}
    for run in oracle.ask(case, passes):
        tables = ((case.outputs, run.outputs), (case.gradients, run.gradients))
        pairs = [
            (expected, value)
            for table, values in tables
            for name, expected in table.items()
            if (value := values[name]) is not None and expected is not None and expected.dtype.is_floating_point
        ]
        found = blocks.baseline_errors([value for _, value in pairs], [expected.reference64 for expected, _ in pairs])
        for (expected, _), (error, _) in zip(pairs, found, strict=True):
            relative = max(error, expected.error_l2) / max(expected.norm, 1e-300)
            errors[expected.name] = max(errors.get(expected.name, 0.0), relative)
    return errors


@remembered
def work(oracle: Oracle, case: Case) -> p.Counted:
    """Operations and mandatory memory of one forward and, where the case has cotangents, one backward."""
    job = questions.script(oracle, case)
    job.put_inputs("a", case.inputs, requires_grad=bool(case.wrt))
    job.step(
        p.Count(
            model=MODEL,
            inputs="a",
            cotangents=job.cotangents(case.cotangents) if case.wrt else {},
            wrt=case.wrt,
            training=case.training,
            clone_inputs=case.clone_inputs,
        )
    )
    job.step(p.Drop())
    counted: p.Counted = oracle.run(job).of(p.Counted)[0]
    return counted


def launches_show(oracle: Oracle, case: Case, short_ms: float) -> bool:
    """Whether launch costs show in the reference's time: its kernels take less than `short_ms` on average."""
    if any(map(is_large, case.inputs)):
        return False
    return _ms_each(oracle, case) < short_ms


@remembered
def _ms_each(oracle: Oracle, case: Case) -> float:
    """Mean milliseconds of one operation of a forward; infinite if operations cannot be counted."""
    job = questions.script(oracle, case)
    job.put_inputs("t", case.inputs)
    # Not `work`, whose backward needs memory that the candidate may hold now.
    job.step(p.Count(model=MODEL, inputs="t", training=case.training, clone_inputs=case.clone_inputs))
    for _ in range(3):
        job.step(p.Time(**case.timed("inference", model=MODEL)))
    job.step(p.Drop())
    result = oracle.run(job, tolerate_failure=True)
    if result.failure is not None:
        return math.inf
    operations = result.of(p.Counted)[0].forward.operations
    return float(min(timed.ms for timed in result.of(p.Timed)) / max(operations, 1))


def narrow_operands(case: Case) -> torch.dtype | None:
    """The narrowest floating type among inputs, parameters and outputs, if it has 16 bits or less."""
    tensors = [value for value in (*case.inputs, *case.state.values()) if isinstance(value, torch.Tensor)]
    dtypes = [value.dtype for value in tensors] + [expected.dtype for expected in case.outputs.values()]
    return min((of for of in dtypes if is_narrow(of)), key=lambda of: of.itemsize, default=None)


def measure_peaks(oracle: Oracle, narrow: Literal["bfloat16", "float16"] | None = None) -> p.Gauged:
    """Peak rates of the device, measured by the reference's worker; `narrow` in products of this type too."""
    oracle.release()
    measured = oracle.step(p.Gauge(device=backend(oracle.device).torch_device, narrow=narrow))
    assert isinstance(measured, p.Gauged)
    return measured
