"""What the reference's work is: how much, how short its kernels are, how exact as shipped, on what device."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from grader import protocol as p
from grader.remote import Script
from grader.stages import passes
from grader.stages.cases import Case
from grader.stages.evaluating import MODEL, evaluate
from grader.stages.reference import ReferenceDesk

SHORT_MS = 0.1
"""Of an operation. In one process a launch costs a GPU 0.1 us more than in another: a thousandth of this."""


def shipped_error(desk: ReferenceDesk, case: Case, *, tf32: bool = True) -> Mapping[str, float]:
    """Relative error of eager PyTorch by the tensors' names; `tf32`: with its default, TensorFloat-32 in cuDNN."""
    return desk.remember(("shipped", case.seed, case.training, tf32), lambda: _shipped_error(desk, case, tf32))


def _shipped_error(desk: ReferenceDesk, case: Case, tf32: bool) -> dict[str, float]:
    run = evaluate(
        desk,
        MODEL,
        desk.traits(case),
        case.inputs,
        case.state,
        case.cotangents,
        case.wrt,
        case.training,
        tf32=tf32,
    )
    found = {}
    tables = ((case.outputs, run.outputs), (case.gradients, run.gradients))
    pairs = [(expected, values[name]) for table, values in tables for name, expected in table.items()]
    for expected, value in pairs:
        if expected is not None and value is not None and expected.dtype.is_floating_point:
            error = max(passes.yardstick(value, expected.golden)[0], expected.error_l2)
            found[expected.name] = error / max(expected.norm, 1e-300)
    return found


def work(desk: ReferenceDesk, case: Case) -> p.Counted:
    """Operations and mandatory memory of one forward and, where the case has cotangents, one backward."""
    return desk.remember(("work", case.seed, case.training), lambda: _work(desk, case))


def _work(desk: ReferenceDesk, case: Case) -> p.Counted:
    desk.ready(case)
    script = Script(desk.worker, desk.device)
    script.set_state(MODEL, case.state)
    script.put_inputs("a", case.inputs, requires_grad=bool(case.wrt))
    script.step(
        p.Count(
            model=MODEL,
            inputs="a",
            cotangents=script.cotangents(case.cotangents) if case.wrt else {},
            wrt=case.wrt,
            training=case.training,
            clone_inputs=case.clone_inputs,
        )
    )
    script.step(p.Drop())
    counted: p.Counted = desk.run(script).of(p.Counted)[0]
    return counted


def launches_show(desk: ReferenceDesk, case: Case) -> bool:
    """Its kernels are so short that what a launch costs is a share of a call that is seen."""
    return desk.remember(("launches", case.seed, case.training), lambda: _ms_each(desk, case) < SHORT_MS)


def _ms_each(desk: ReferenceDesk, case: Case) -> float:
    """Milliseconds of one operation of a forward, on average; infinite where they cannot be counted."""
    desk.ready(case)
    script = Script(desk.worker, desk.device)
    script.set_state(MODEL, case.state)
    script.put_inputs("a", case.inputs)
    run: dict[str, Any] = {"inputs": "a", "training": case.training, "clone_inputs": case.clone_inputs}
    script.step(p.Count(model=MODEL, **run))  # not `work`, whose backward needs memory that a candidate may hold now
    for _ in range(3):
        script.step(p.Time(part="inference", model=MODEL, tape="a", grads="a", **run))
    script.step(p.Drop())
    finding = desk.run(script, tolerate_failure=True)
    if finding.failure is not None:
        return math.inf
    operations = finding.of(p.Counted)[0].forward.operations
    return float(min(timed.ms for timed in finding.of(p.Timed)) / max(operations, 1))


def gauge(desk: ReferenceDesk) -> p.Gauged:
    """What the device can do, measured by the reference's worker."""
    desk.release()
    measured = desk.step(p.Gauge(device=desk.device.value))
    assert isinstance(measured, p.Gauged)
    return measured
