"""Command line of the mutation test: `python -m fuzz.mutants --help`."""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings
from collections import Counter
from pathlib import Path

import torch

from fuzz.mutants import campaign as runs
from fuzz.mutants.corpus import Entry, entries
from fuzz.mutants.edits import Mutant
from fuzz.mutants.effect import Original
from fuzz.mutants.summary import described, summary

EPILOG = """\
Each mutant is a right submission with one change of its forward or backward. Its results are compared with the
original's in float64; a mutant that raises, changes nothing, or changes by rounding only is not counted. The others are
graded on the CPU with --quick and one round of timing. A mutant is killed unless its verdict is `correct`.

  python -m fuzz.mutants --originals             # the right submissions: all must be correct
  python -m fuzz.mutants --count 40 --seed 7     # 40 mutants with an effect, spread over all problems
  python -m fuzz.mutants --count 1000 --json runs/mutants.json
  python -m fuzz.mutants --only precision,layer_norm --count 20
  python -m fuzz.mutants --json runs/mutants.json --again   # the survivors of that file once more

A run continues the findings in the --json file. Ctrl-C ends it after saving them."""


def main() -> int:
    """Run the campaign; the exit status is 1 if a mutant survived or an original is not correct."""
    known = entries()
    parser = argparse.ArgumentParser(
        "python -m fuzz.mutants", description="Grades seeded faults and counts those that pass.", epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument(
        "--count", type=int, default=73, help="mutants with an effect, in the file and new (default: 73)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the choice of mutants")
    parser.add_argument("--only", default="", help="problems, mutation classes, or both, separated by commas")
    parser.add_argument("--json", type=Path, help="file to continue and to write all findings to")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after this long")
    parser.add_argument("--originals", action="store_true", help="grade the unmutated submissions instead")
    parser.add_argument("--again", action="store_true", help="grade the survivors in the --json file once more")
    parser.add_argument("--list", action="store_true", help="print the problems and mutation classes")
    options = parser.parse_args()
    chosen = [word for word in options.only.split(",") if word]
    if unknown := [word for word in chosen if word not in known and word not in runs.KINDS]:
        parser.error(f"--only: unknown {', '.join(unknown)}; --list prints the problems and classes")
    if options.list:
        print("problems:", *known, "\nclasses:", *runs.KINDS)
        return 0
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True, warn_only=True)  # fills memory of torch.empty with NaN
    kinds = frozenset(word for word in chosen if word in runs.KINDS) or None
    problems = [known[word] for word in chosen if word in known] or list(known.values())
    if options.originals:
        return originals(problems)
    findings = runs.read(options.json) if options.json else []
    deadline = time.monotonic() + options.seconds
    try:
        if options.again:
            again(known, findings, deadline)
        else:
            more(problems, findings, options.count, options.seed, kinds, deadline, options.json)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    if options.json:
        runs.save(findings, options.json)
    print(summary(findings))
    survivors = [one for one in findings if one.survived]
    print("", *(described(one) for one in survivors), sep="\n")
    return 1 if survivors else 0


def more(
    problems: list[Entry], findings: list[runs.Finding], count: int, seed: int, kinds: frozenset[str] | None,
    deadline: float, path: Path | None,
) -> None:  # fmt: skip
    """Grade mutants until there are `count` findings with an effect, as many of each problem."""
    done = frozenset(one.source for one in findings)
    before = Counter(one.problem for one in findings if one.effect == "real")
    chance = random.Random(seed)
    order = chance.sample(problems, len(problems))
    graded = sum(before.values())
    with runs.grading() as grader:
        for turn, entry in enumerate(order):
            share = count * (turn + 1) // len(order) - count * turn // len(order) - before[entry.name]
            if share <= 0:
                continue
            for finding in runs.campaign(grader, entry, share, chance, kinds=kinds, done=done):
                findings.append(finding)
                graded += finding.effect == "real"
                if finding.status:
                    progress(finding, graded, count)
                if time.monotonic() > deadline:
                    return
            if path:
                runs.save(findings, path)


def again(known: dict[str, Entry], findings: list[runs.Finding], deadline: float) -> None:
    """Grade the survivors once more, in place."""
    with runs.grading() as grader:
        for index, old in enumerate(findings):
            if old.survived and time.monotonic() < deadline:
                mutant = Mutant(old.problem, old.kind, old.part, old.before, old.after, old.source)
                original = Original(known[old.problem])
                findings[index] = runs.examine(grader, known[old.problem], original, mutant)
                progress(findings[index], index + 1, len(findings))


def originals(problems: list[Entry]) -> int:
    """Grade the right submissions; 1 if one is not `correct` without a warning."""
    wrong = 0
    with runs.grading() as grader:
        for entry in problems:
            verdict = runs.grade(grader, entry, entry.submission_source)
            shown = [one for one in verdict.diagnoses if one.severity != "info" and one.stage != "timing"]
            wrong += verdict.status != "correct" or bool(shown)
            print(f"{entry.name}: {verdict.status}", *(f"  {one.severity} {one.code}: {one.message}" for one in shown),
                  sep="\n")  # fmt: skip
    print(f"{len(problems) - wrong} of {len(problems)} right submissions are correct without a warning")
    return 1 if wrong else 0


def progress(finding: runs.Finding, graded: int, count: int) -> None:
    """One line on stderr."""
    codes = ",".join(code for severity, code, _ in finding.diagnoses if severity == "error")
    mark = "SURVIVED" if finding.survived else finding.named or finding.effect
    what = f"{finding.problem} {finding.kind}: {finding.status} {codes} [{mark}]"
    print(f"{graded}/{count} {finding.seconds:5.2f} s  {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
