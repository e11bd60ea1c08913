"""The page "Why was I rejected?": each code with its meaning, its remedy and a submission that gets it."""

from __future__ import annotations

import json
from pathlib import Path

from grader.grading.status import STATUS_OF_STAGE
from grader.verdict.codes import CODES, Code
from grader.verdict.models import Status

ROOT = Path(__file__).resolve().parents[1]

_INTRODUCTION = """# Why was I rejected?

    grader show 12
    grader show 12 --feedback

The verdict's status is the first question that the submission failed; its first diagnosis has a code, and names the
tensor, the place, the amount and the remedy. Below, each code is under the status that it usually gives: what it means,
what to change, and the name of a submission in `tests/cases/` that gets it. Warnings and information leave a verdict
`correct`.

This page is generated from `grader/verdict/codes.py`."""


def page() -> str:
    """The page, in Markdown."""
    examples = _examples()
    parts = [_INTRODUCTION]
    for status in Status:
        listed = {name: code for name, code in CODES.items() if _status(code) is status}
        if listed:
            parts.append(f"## {status}")
            parts += [_section(name, code, examples.get(name)) for name, code in listed.items()]
    parts.append("## Correct all the same")
    parts += [_section(name, code, examples.get(name)) for name, code in CODES.items() if _status(code) is None]
    return "\n\n".join(parts) + "\n"


def _status(code: Code) -> Status | None:
    return code.status or (STATUS_OF_STAGE.get(code.stage) if code.severity == "error" else None)


def _section(name: str, code: Code, example: str | None) -> str:
    kind = "" if code.severity == "error" else f" ({code.severity})"
    shown = f"\n\nExample: `{example}`." if example else ""
    return f"### {name}{kind}\n\n{code.meaning} **{code.remedy}**{shown}"


def _examples() -> dict[str, str]:
    """A case for each code, the one with the fewest codes."""
    found: dict[str, tuple[int, str]] = {}
    for path in sorted((ROOT / "tests" / "cases").glob("*/expected.json")):
        for name, expected in json.loads(path.read_text()).items():
            codes = expected.get("codes") or ()
            for code in codes:
                found[code] = min(found.get(code, (99, "")), (len(codes), f"tests/cases/{path.parent.name}/{name}"))
    return {code: name for code, (_, name) in found.items()}
