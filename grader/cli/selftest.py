"""`grader selftest`: measures this machine's timing noise on cases whose answer is known."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from grader.verdict.models import Device

if TYPE_CHECKING:
    from grader.grading.selftest import Figure


def selftest(
    timing: Annotated[
        bool, typer.Option("--timing", help="Time references against themselves, and against slowed copies.")
    ] = False,
    runs: Annotated[int, typer.Option("--runs", min=1, metavar="N", help="Fresh processes for each comparison.")] = 3,
    device: Annotated[
        Device | None, typer.Option("--device", help="Device to test; by default the GPU if there is one.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object with every figure on stdout.")] = False,
) -> None:
    """Measure timing noise on this machine.

    Three references, of about 20 us, about 1 ms and a whole convolution block, are graded against themselves. Any
    result but same or inconclusive is a false alarm, and the exit status is 1. A copy of each that takes 3% longer in
    the forward (15% on the CPU) should be called slower; the command prints how often it was. Takes about half a minute
    for each run and problem.

    \b
    Examples:
      grader selftest --timing
      grader selftest --timing --runs 10 --device cuda --json > selftest.json
    """
    from grader.errors import UserError

    if not timing:
        raise UserError("selftest: there is nothing to test; add --timing")
    from grader.catalog.problems import find_problems
    from grader.grading import selftest as own
    from grader.grading.resources import Resources
    from grader.machine.allocator import keep_freed_memory
    from grader.machine.backends import default_device

    chosen = device or default_device()
    convolution = find_problems(()).problem(own.CONVOLUTION)
    comparisons = []
    keep_freed_memory()
    with Resources() as resources:
        for comparison in own.run(resources, chosen, convolution, runs):
            comparisons.append(comparison)
            if not as_json:
                print(_line(comparison), flush=True)
    summary = own.summary(comparisons)
    if as_json:
        rows = [asdict(comparison) for comparison in comparisons]
        print(json.dumps({"device": chosen.value, "findings": rows, "summary": summary}))
    else:
        print(_summary_line(summary))
    if summary["called_faster"] or summary["called_slower"]:
        raise typer.Exit(1)


def _line(one: Figure) -> str:
    what = f"{one.planted:.0%} planted" if one.planted else "itself"
    return (
        f"{one.problem:<28} {what:<11} {one.figure:<8} {one.reference_ms:>9.4f} ms  "
        f"{one.speedup:.4f}x [{one.ci_low:.4f}, {one.ci_high:.4f}] {one.verdict}"
    )


def _summary_line(summary: dict[str, object]) -> str:
    return (
        f"against themselves: |ratio - 1| {summary['median_error']:.2%} median, {summary['worst_error']:.2%} worst; "
        f"{summary['compared']} compared, {summary['called_faster']} called faster, "
        f"{summary['called_slower']} called slower; "
        f"slowdowns: {summary['planted_found']} of {summary['planted']} found"
    )
