"""Counts right results rejected and wrong results accepted by the tolerance, and by one model in its place.

    python -m benchmarks.rounding_rule --draws 200 --current      # results of the tolerance alone
    python -m benchmarks.rounding_rule --draws 3 --faults 3       # and seeded faults of each problem, by all rules
    python -m benchmarks.rounding_rule --draws 20 --device cuda

Everything runs in this process. Right results are those of the right submissions of `fuzz/mutants`, and those of all
references, shipped ones and those of the cases too, without oneDNN or cuDNN and rounded as by Winograd. Wrong ones have
noise, a factor or a wrong element, are rounded to TensorFloat-32, or are those of seeded faults (`fuzz/mutants`) that
change an output or gradient beyond rounding. A rule accepts a seeded fault if it accepts all tensors in FAULT_DRAWS
draws, about as many as one grading has; any other wrong result counts in each draw.

`current` is `tolerance.check`. The others are one model of rounding: N runs of the reference on inputs and parameters
changed by U units of float32's epsilon e give spread_i, the largest error of element i, and a candidate's error may be
a * spread_i + b e sqrt(K) (rms(G) + |G_i|) there. `pooled` adds the tensor's median spread to spread_i. `second look`
asks the model only where the tolerance with a baseline error of 0 does not accept a tensor.
"""

from __future__ import annotations

import argparse
import math
import random
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch

import fuzz.mutants.arithmetic
import fuzz.mutants.memory  # noqa: F401
from benchmarks.rounding_cases import Draw, other_problems, right, tensor, wrong
from fuzz.mutants.corpus import Entry, entries
from fuzz.mutants.edits import mutants, sample
from fuzz.mutants.effect import Original, limit, load
from grader.grading.compare import nonsmooth, tolerance
from grader.grading.compare.expected import EPSILON
from grader.grading.oracle.evaluation import Evaluation
from grader.verdict.models import Device

FAULT_DRAWS = 4
FAULT_KINDS = frozenset(
    ("precision", "constant", "dropped_term", "dropped_factor", "sign", "operator", "function", "boundary",
     "comparison", "wrong_operand")
)  # fmt: skip
"""Classes of faults that change values; the others are found by other means than the tolerance."""
MODELS = [(False, 4, 8, 4, 8), (True, 4, 8, 4, 8), (False, 16, 64, 4, 8), (False, 16, 64, 4, 32), (True, 16, 64, 1, 8)]
"""(pooled, N, U, a, b) of each alternative."""

Rule = Callable[[Draw, Evaluation], bool]


def current(draw: Draw, run: Evaluation) -> bool:
    """Whether `tolerance.check` accepts all tensors."""
    return all(
        tolerance.check(expected, tensor(run, name)).status == "passed" for name, expected in draw.expected.items()
    )


def model(
    draw: Draw,
    run: Evaluation,
    *,
    pooled: bool,
    runs: int,
    ulps: float,
    a: float,
    b: float,
    among: Collection[str] | None = None,
) -> bool:
    """Whether one model of rounding accepts all tensors, or those `among` them."""
    for name in draw.expected if among is None else among:
        expected = draw.expected[name]
        value, exact = tensor(run, name), expected.reference64
        spread = draw.spread(name, runs, ulps)
        error = nonsmooth.absolute_error(value, exact)
        if not exact.is_floating_point():
            if bool((error > spread).any()):
                return False
            continue
        if expected.overflows is not None:
            value = torch.where(expected.overflows & ~value.isfinite(), exact.to(value), value)
        if not bool((value.isfinite() == exact.isfinite()).all()):
            return False
        if pooled:
            spread = spread + spread.median()
        scale = exact.abs().nan_to_num(0.0, 0.0, 0.0) + expected.norm / math.sqrt(max(exact.numel(), 1))
        allowed = a * spread + b * EPSILON * math.sqrt(expected.reduction_length) * scale
        if bool((error > allowed).any()):
            return False
    return True


def hybrid(draw: Draw, run: Evaluation) -> bool:
    """Whether rounding alone explains each tensor's error, or the model with a spread of sixteen runs does."""
    plain = {
        name: replace(expected, error_l2=0.0, error_max=0.0, spread=None, ties=None)
        for name, expected in draw.expected.items()
    }
    left = [name for name in plain if tolerance.check(plain[name], tensor(run, name)).status != "passed"]
    return not left or model(draw, run, pooled=False, runs=16, ulps=64, a=4, b=8, among=left)


def rules() -> dict[str, Rule]:
    """All rules by name."""
    found: dict[str, Rule] = {"current": current, "second look": hybrid}
    for pooled, runs, ulps, a, b in MODELS:
        name = f"{'pooled' if pooled else 'spread'} N={runs} U={ulps:g} a={a:g} b={b:g}"
        found[name] = partial(model, pooled=pooled, runs=runs, ulps=ulps, a=a, b=b)
    return found


@dataclass
class Tally:
    """Counts the right results that each rule rejects, and the wrong ones that it accepts."""

    among: dict[str, Rule]
    device: Device
    right: int = 0
    wrong: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))

    def references(self, name: str, problem: Any, draws: Iterable[int], submission: Any = None) -> None:
        """Judge right results of a problem, and the same with an error."""
        for seed in draws:
            draw = Draw(problem, self.device, seed)
            for what, run in right(draw, submission).items():
                self.right += 1
                for rule in self.among.keys() - self._accepting(draw, run):
                    self.rejected[rule] += 1
                    self.examples[rule][f"right, rejected: {name} ({what})"] += 1
            for what, run in wrong(draw):
                self._count_wrong(self._accepting(draw, run), f"{name}, {what}")

    def entry(self, entry: Entry, draws: range, faults: int) -> None:
        """Judge an entry's right submission and its faults."""
        self.references(entry.name, load(entry.problem_source), draws, load(entry.submission_source))
        if faults:
            self.faults(entry, faults, draws.start)

    def faults(self, entry: Entry, count: int, seed: int) -> None:
        """Judge so many seeded faults of an entry that change a result of a plain forward and backward."""
        original = Original(entry)
        available = mutants(entry, FAULT_KINDS)
        draws = [Draw(load(entry.problem_source), self.device, seed + number) for number in range(FAULT_DRAWS)]
        for mutant in sample(available, len(available), random.Random(seed)):
            if count <= 0:
                return
            effect = original.measure(mutant.source)
            if effect.verdict != "real" or not any(name.startswith(("output[", "grad ")) for name in effect.changed):
                continue
            count -= 1
            accepting = set(self.among)
            for draw in draws:
                try:
                    with limit(5):
                        run = draw.run(partial(load(mutant.source).ModelNew, *draw.arguments))
                    accepting &= self._accepting(draw, run)
                except Exception:  # a fault that raises is rejected
                    accepting = set()
            text = f"{mutant.kind}: {mutant.before} -> {mutant.after}"[:100]
            self._count_wrong(accepting, f"{entry.name} {text}, off by {effect.relative:.1g}")

    def show(self, *, examples: bool) -> None:
        """Print a line for each rule, and with `examples` what it got wrong."""
        print(f"{'rule':<36}{f'rejected of {self.right} right':>26}{f'accepted of {self.wrong} wrong':>26}")
        for rule in self.among:
            print(f"{rule:<36}{self.rejected[rule]:>26}{self.accepted[rule]:>26}")
            if examples:
                for text, count in self.examples[rule].most_common():
                    print(f"    {count:4} {text}")

    def _count_wrong(self, accepting: Iterable[str], text: str) -> None:
        self.wrong += 1
        for rule in accepting:
            self.accepted[rule] += 1
            self.examples[rule][f"wrong, accepted: {text}"] += 1

    def _accepting(self, draw: Draw, run: Evaluation) -> set[str]:
        """The names of the rules that accept a run's tensors."""
        for name, expected in draw.expected.items():
            value = tensor(run, name)
            if value is None or value.shape != expected.shape or value.dtype != expected.dtype:
                return set()
        return {name for name, rule in self.among.items() if rule(draw, run)}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=Device, choices=list(Device), default=Device.CPU)
    parser.add_argument("--draws", type=int, default=20, help="draws of each right submission")
    parser.add_argument("--faults", type=int, default=0, help="seeded faults of each problem")
    parser.add_argument("--current", action="store_true", help="leave the alternatives out")
    parser.add_argument("--examples", action="store_true", help="list what each rule gets wrong")
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after this long")
    parser.add_argument("--seed", type=int, default=0, help="number of the first draw")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.backends.cudnn.allow_tf32 = False
    known = [entry for entry in entries().values() if "rand" not in entry.submission_source]
    rules_ = {"current": current} if arguments.current else rules()
    tally, deadline = Tally(rules_, arguments.device), time.monotonic() + arguments.seconds
    draws = range(arguments.seed, arguments.seed + arguments.draws)
    work = [partial(tally.entry, entry, draws, arguments.faults) for entry in known]
    work += [partial(tally.references, name, problem, draws) for name, problem in other_problems()]
    random.Random(arguments.seed).shuffle(work)
    for index, one in enumerate(work):
        if time.monotonic() > deadline:
            print(f"{arguments.seconds:g} s are over after {index} of {len(work)} problems")
            break
        one()
    tally.show(examples=arguments.examples)


if __name__ == "__main__":
    main()
