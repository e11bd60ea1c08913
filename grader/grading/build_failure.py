"""The diagnosis of a build that failed."""

from __future__ import annotations

from grader import protocol as p
from grader.grading.outcome import MAX_QUOTED, diagnose
from grader.verdict.models import Diagnosis


def build_failed(event: p.BuildEvent, text: str = "") -> Diagnosis:
    """`compile_error` for a build that failed; `text` if it left no log."""
    return diagnose(
        "compile_error",
        f"building extension `{event.name}` failed: {first_compiler_error(event.log or text)}",
        remedy="correct that line; the build log has the rest",
    )


def first_compiler_error(log: str) -> str:
    """The line of a build log that an author must look at first."""
    markers = (" error:", "error:", "fatal error", "undefined reference", "error   :", "Error:", " error ")
    for line in log.splitlines():
        if any(marker in line for marker in markers) and not line.startswith(("FAILED", "ninja:")):
            return line.strip()[:MAX_QUOTED]
    lines = [line for line in log.strip().splitlines() if line.strip()]
    return lines[-1].strip()[:MAX_QUOTED] if lines else "the compiler printed nothing"
