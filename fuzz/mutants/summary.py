"""Counts findings: by mutation class, by problem, and how well killed ones were named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from fuzz.mutants.campaign import Finding


def summary(findings: list[Finding]) -> str:
    """The tables that a run prints."""
    effects, real = Counter(one.effect for one in findings), [one for one in findings if one.effect == "real"]
    narrow = [one for one in findings if one.effect == "unusual inputs"]
    warned = sum(any(code == "narrow_inputs" for _, code, _ in one.diagnoses) for one in narrow)
    rejected = sum(one.status != "correct" for one in narrow)
    lines = [
        f"{len(findings)} mutants made: {effects['raises']} raise, {effects['equivalent']} change nothing, "
        f"{effects['rounding']} by rounding only, {len(narrow)} on unusual inputs only, {len(real)} change a result",
        f"on unusual inputs only: {rejected} rejected, {warned} with the warning narrow_inputs",
        "",
        *table("class", real, lambda one: one.kind),
        "",
        *table("problem", real, lambda one: one.problem),
    ]
    return "\n".join(lines)


def table(title: str, findings: list[Finding], key: Callable[[Finding], str]) -> Iterator[str]:
    """One row for each key, and all."""
    yield f"| {title} | mutants | killed | survived | failed | rate | named: fits | vague | false |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"
    for name in sorted({key(one) for one in findings}):
        yield row(name, [one for one in findings if key(one) == name])
    yield row("all", findings)


def row(name: str, findings: Iterable[Finding]) -> str:
    """The counts of one group."""
    group = list(findings)
    killed, survived = [one for one in group if one.killed], [one for one in group if one.survived]
    named = Counter(one.named for one in killed)
    rate = 100 * len(killed) / (len(killed) + len(survived)) if killed or survived else 100.0
    failed = len(group) - len(killed) - len(survived)
    cells = [
        len(group),
        len(killed),
        len(survived),
        failed,
        f"{rate:.2f}%",
        *(named[n] for n in ("fits", "vague", "false")),
    ]
    return f"| {name} | " + " | ".join(map(str, cells)) + " |"


def described(finding: Finding) -> str:
    """A survivor in a few lines."""
    lines = [
        f"{finding.problem} {finding.part}, {finding.kind}: {finding.before}  =>  {finding.after}",
        f"  changes {', '.join(finding.changed[:6])} by up to {finding.relative:.2g}",
        *(f"  {name}: error {error:.2g}, baseline {baseline:.2g}" for name, error, baseline in finding.checks[:12]),
        *(f"  {severity} {code}: {message}" for severity, code, message in finding.diagnoses),
    ]
    return "\n".join(lines)
