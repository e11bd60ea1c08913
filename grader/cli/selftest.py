"""`grader selftest`: what this machine's times are worth, asked of cases whose answer is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from grader.grading.selftest import Finding


class SelftestDevice(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"


def selftest(
    timing: Annotated[
        bool, typer.Option("--timing", help="Time references against themselves, and against slowed copies.")
    ] = False,
    runs: Annotated[int, typer.Option("--runs", min=1, metavar="N", help="Fresh processes for each comparison.")] = 3,
    device: Annotated[
        SelftestDevice | None, typer.Option("--device", help="Which one; without it, the GPU where there is one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with every figure on stdout.")] = False,
) -> None:
    """Tell whether times on this machine can be believed.

    Three references, of about 20 us, about 1 ms and a whole convolution block, are graded against themselves: whatever
    is not called the same or inconclusive is a false alarm, and the exit status 1. A copy of each that takes 3% longer
    in the forward (15% on the CPU) should be called slower; how often it was is printed. Takes about half a minute for
    each run and problem.

    \b
    Examples:
      grader selftest --timing
      grader selftest --timing --runs 10 --device cuda --json > selftest.json
    """
    from grader.errors import UserError

    if not timing:
        raise UserError("selftest: say what to test: --timing")
    from grader.catalog.problems_and_submissions import find_problems
    from grader.grading import selftest as own
    from grader.grading.resources import Resources
    from grader.machine.allocator import keep_freed_memory
    from grader.machine.backends import default_device
    from grader.verdict.models import Device

    chosen = Device(device.value) if device is not None else default_device()
    convolution = find_problems(()).problem(own.CONVOLUTION)
    findings = []
    keep_freed_memory()
    with Resources() as resources:
        for finding in own.run(resources, chosen, convolution, runs):
            findings.append(finding)
            if not as_json:
                print(_line(finding), flush=True)
    told = own.summary(findings)
    if as_json:
        rows = [asdict(finding) for finding in findings]
        print(json.dumps({"device": chosen.value, "findings": rows, "summary": told}))
    else:
        print(_in_short(told))
    if told["called_faster"] or told["called_slower"]:
        raise typer.Exit(1)


def _line(finding: Finding) -> str:
    what = f"{finding.planted:.0%} planted" if finding.planted else "itself"
    return (
        f"{finding.problem:<28} {what:<11} {finding.figure:<8} {finding.reference_ms:>9.4f} ms  "
        f"{finding.speedup:.4f}x [{finding.ci_low:.4f}, {finding.ci_high:.4f}] {finding.verdict}"
    )


def _in_short(told: dict[str, object]) -> str:
    return (
        f"against themselves: |ratio - 1| {told['median_error']:.2%} median, {told['worst_error']:.2%} worst; of "
        f"{told['compared']} called faster {told['called_faster']}, slower {told['called_slower']}; "
        f"slowdowns found {told['planted_found']} of {told['planted']}"
    )
