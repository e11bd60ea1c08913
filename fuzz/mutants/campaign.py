"""Grades mutants with the real grader and keeps what was found."""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from fuzz.mutants import arithmetic, memory, naming  # noqa: F401 (the first two register their edits)
from fuzz.mutants.corpus import Entry
from fuzz.mutants.edits import EDITS, Mutant, mutants, sample
from fuzz.mutants.effect import Original
from grader.api import Grader
from grader.grading import plan
from grader.grading.timing import stopping
from grader.verdict.models import Problem, Verdict

KINDS = tuple(dict.fromkeys(kind for kind, _ in EDITS))
"""All mutation classes, those of `arithmetic` and of `memory`."""


@dataclass
class Finding:
    """One mutant and what became of it."""

    problem: str
    kind: str
    part: str
    before: str
    after: str
    effect: str
    changed: tuple[str, ...] = ()
    relative: float = 0.0
    traits: tuple[str, ...] = ()
    status: str = ""
    """The verdict's; empty for a mutant that was not graded."""
    diagnoses: tuple[tuple[str, str, str], ...] = ()
    """(severity, code, message) of errors and warnings."""
    named: str = ""
    why: str = ""
    checks: tuple[tuple[str, float, float], ...] = ()
    """Of one that survived: (tensor, relative error, baseline error) of the forward and the backward."""
    seconds: float = 0.0
    source: str = ""

    @property
    def survived(self) -> bool:
        """Whether it changes a result and was `correct`."""
        return self.effect == "real" and self.status == "correct"

    @property
    def killed(self) -> bool:
        """Whether it changes a result and was rejected."""
        return self.effect == "real" and self.status not in ("", "correct", "grader_error", "not_run")


@contextmanager
def grading() -> Iterator[Grader]:
    """One grader on the CPU with a single round of timing, whose outputs are compared all the same."""
    usual = stopping.QUICK
    vars(plan)["QUICK"] = stopping.RoundLimits(min_rounds=1, max_rounds=1, seconds=0.0)
    try:
        with Grader(device="cpu", quick=True) as grader:
            yield grader
    finally:
        vars(plan)["QUICK"] = usual


def grade(grader: Grader, entry: Entry, source: str) -> Verdict:
    """The verdict on a source for the entry's problem."""
    path = Path(tempfile.gettempdir()) / f"{entry.name}.py"
    return grader.grade(source=source, problem=Problem(id=entry.name, path=path, source=entry.problem_source))


def campaign(
    grader: Grader, entry: Entry, count: int, chance: random.Random, *, kinds: frozenset[str] | None,
    done: frozenset[str] = frozenset(),
) -> Iterator[Finding]:  # fmt: skip
    """Findings on one problem until `count` mutants with an effect are graded; sources in `done` are left out."""
    available = [one for one in mutants(entry, kinds) if one.source not in done]
    original, graded = Original(entry), 0
    for mutant in sample(available, len(available), chance):
        if graded >= count:
            return
        finding = examine(grader, entry, original, mutant)
        graded += finding.effect == "real"
        yield finding


def examine(grader: Grader, entry: Entry, original: Original, mutant: Mutant) -> Finding:
    """The effect of a mutant, and its verdict if it has an effect."""
    effect = original.measure(mutant.source)
    finding = Finding(
        mutant.problem, mutant.kind, mutant.part, mutant.before, mutant.after, effect.verdict, effect.changed,
        effect.relative, tuple(sorted(effect.traits)), source=mutant.source,
    )  # fmt: skip
    if effect.verdict not in ("real", "unusual inputs"):
        return finding
    began = time.monotonic()
    verdict = grade(grader, entry, mutant.source)
    finding.seconds = round(time.monotonic() - began, 2)
    finding.status = str(verdict.status)
    shown = [one for one in verdict.diagnoses if one.severity != "info"]
    finding.diagnoses = tuple((one.severity, one.code, one.message) for one in shown)
    if finding.killed:
        errors = [(one.code, one.message) for one in shown if one.severity == "error"]
        finding.named, finding.why = naming.judge(mutant, effect, finding.status, errors)
    elif verdict.forward is not None:
        variants = [*verdict.forward.variants, *(verdict.backward.variants if verdict.backward else ())]
        finding.checks = tuple(
            (f"{variant.variant} {one.name}", one.rel_rms_error or 0.0, one.baseline_rel_rms_error or 0.0)
            for variant in variants
            for one in variant.tensors
        )
    return finding


def save(findings: list[Finding], path: Path) -> None:
    """Write all findings as JSON, by a rename."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps([asdict(one) for one in findings], indent=1))
    part.replace(path)


def read(path: Path) -> list[Finding]:
    """Findings that `save` wrote; none if there is no such file."""
    if not path.exists():
        return []
    return [Finding(**one) for one in json.loads(path.read_text())]
