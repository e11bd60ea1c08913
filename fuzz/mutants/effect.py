"""Measures what a mutation changes: original and mutant beside each other in float64, on drawn and on unusual inputs.

Besides a plain forward and backward, both take part in a `protocol`: a second forward between, repeated backwards,
other grad_outputs and layouts, single outputs.

Rounding is the error of the original itself in float32, four times, and 32 units of float32 relative to the result's
norm; or in one element eight times the largest such error and 2e-5 of its value plus the result's root mean square. A
change beyond that is an effect.
"""

from __future__ import annotations

import signal
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch

from fuzz.mutants.corpus import Entry
from fuzz.mutants.exercise import Results, protocol, trained

EPSILON = torch.finfo(torch.float32).eps
CLEARLY = 1e-3
"""Relative change on unusual inputs, which run in float32 because overflow is part of the question, that counts."""
DRAWS = 4
SECONDS = 5
"""After which a mutant counts as one that raises."""
Verdict = Literal["raises", "equivalent", "rounding", "unusual inputs", "real"]


@dataclass(frozen=True)
class Setting:
    """One draw: how inputs and parameters are made, and in which mode."""

    name: str
    seed: int
    training: bool
    usual: bool = True
    """Whether the inputs are the problem's own, with parameters as after some training."""
    change: Callable[[torch.Tensor], torch.Tensor] = lambda x: x
    """Applied to floating-point inputs."""


@dataclass
class Effect:
    """The effect of a mutation, beyond rounding."""

    verdict: Verdict
    changed: tuple[str, ...] = ()
    """Names of results: `output`, `grad x`, `buffer norm.running_mean`, `protocol ...`."""
    relative: float = 0.0
    """The largest change of a result, as a norm relative to the original's."""
    raised: str = ""
    traits: frozenset[str] = field(default_factory=frozenset)
    """Which specific causes are true of it: `grad_zero grad x`, `scaled grad x`, `none grad x`, `eval only`, ..."""


def settings(source: str) -> list[Setting]:
    """The draws on which a submission is compared."""
    modes = (True, False) if "training" in source else (True,)
    usual = [Setting(f"draw {i}", i, mode) for mode in modes for i in range(DRAWS)]
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "small": lambda x: x * 1e-3,
        "large": lambda x: x * 300,
        "shifted": lambda x: x + 8,
        "equal": lambda x: torch.ones_like(x) * x.flatten()[0] if x.numel() else x,
        "sorted": lambda x: x.sort(-1).values if x.dim() else x,
    }
    return usual + [Setting(name, 7, True, False, change) for name, change in changes.items()]


def load(source: str) -> types.SimpleNamespace:
    """The module's names."""
    names: dict[str, Any] = {"__name__": "mutant"}
    exec(compile(source, "mutant", "exec"), names)
    return types.SimpleNamespace(**names)


class Original:
    """An entry's original with its results in float64 and its rounding."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self.problem, self.source = load(entry.problem_source), entry.submission_source
        self.settings = settings(self.source)
        self.exact = {one.name + str(one.training): self.results(self.source, one) for one in self.settings}
        self.rounding: dict[str, float] = {}
        self.rounding_max: dict[str, float] = {}
        for one in self.settings[:DRAWS]:
            self._measure_rounding(one)

    def _measure_rounding(self, setting: Setting) -> None:
        exact = self.exact[setting.name + str(setting.training)]
        for key, value in self.results(self.source, setting, torch.float32).items():
            right = exact[key]
            if value is None or right is None or not right.is_floating_point() or not right.numel():
                continue
            error = (value.double() - right).nan_to_num()
            scale = float(right.norm()) or 1.0
            relative, largest = float(error.norm()) / scale, float(error.abs().max())
            if "rand" in self.source:  # a draw depends on the dtype; such an error says nothing about rounding
                relative, largest = min(relative, 1e-5), min(largest, 1e-5 * float(right.abs().max()))
            self.rounding[key] = max(self.rounding.get(key, 0.0), relative)
            self.rounding_max[key] = max(self.rounding_max.get(key, 0.0), largest)

    def measure(self, source: str) -> Effect:
        """Measures the effect of a mutant."""
        changed: dict[str, str] = {}
        unusual: dict[str, str] = {}
        rounding, relative = False, 0.0
        pairs: dict[str, list[tuple[Results, Results]]] = {"train": [], "eval": []}
        for setting in self.settings:
            exact = self.exact[setting.name + str(setting.training)]
            try:
                with limit(SECONDS):
                    actual = self.results(source, setting)
            except Exception as error:
                if setting is self.settings[0]:
                    return Effect("raises", raised=f"{type(error).__name__}: {error}"[:200])
                changed["raises"] = setting.name
                continue
            if actual.keys() != exact.keys():
                return Effect("real", ("outputs",), float("inf"))
            if setting.usual:
                pairs["train" if setting.training else "eval"].append((exact, actual))
            for key in exact:
                size, above = self.difference(key, exact[key], actual[key])
                rounding |= size > 0
                if above and (setting.usual or size > CLEARLY):
                    (changed if setting.usual else unusual)[key] = setting.name
                    relative = max(relative, size) if setting.usual or not changed else relative
        if changed:
            return Effect("real", tuple(changed), relative, traits=frozenset(traits(pairs, changed)))
        if unusual:
            return Effect("unusual inputs", tuple(f"{key} ({how})" for key, how in unusual.items()), relative)
        return Effect("rounding" if rounding else "equivalent")

    def difference(self, key: str, right: torch.Tensor | None, other: torch.Tensor | None) -> tuple[float, bool]:
        """(relative size of the change, whether it is beyond rounding)."""
        if right is None or other is None:
            return (0.0, False) if right is other else (float("inf"), True)
        if right.shape != other.shape or right.dtype != other.dtype:
            return float("inf"), True
        if not right.is_floating_point():
            return (0.0, False) if torch.equal(right, other) else (float("inf"), True)
        if not torch.equal(right.isfinite(), other.isfinite()) or not torch.equal(right.isnan(), other.isnan()):
            return float("inf"), True
        error, right = (other - right).nan_to_num(), right.nan_to_num(posinf=0.0, neginf=0.0)
        if not right.numel() or not bool(error.any()):
            return 0.0, False
        size, scale = float(error.norm()), float(right.norm())
        bound = (4 * self.rounding.get(key, 0.0) + 32 * EPSILON) * scale
        slope = 2e-5 * (right.abs() + scale / right.numel() ** 0.5)
        above = size > bound or bool((error.abs() > 8 * self.rounding_max.get(key, 0.0) + slope).any())
        return size / scale if scale else float("inf"), above

    def results(self, source: str, setting: Setting, dtype: torch.dtype = torch.float64) -> Results:
        """Everything that one setting compares."""
        dtype = dtype if setting.usual else torch.float32
        torch.manual_seed(setting.seed)
        arguments = self.problem.get_init_inputs() if hasattr(self.problem, "get_init_inputs") else []
        model = load(source).ModelNew(*arguments).to(dtype)
        model.train(setting.training)
        trained(model, setting.seed)
        draws = [self._inputs(setting, dtype) for _ in range(2)]
        return protocol(model, draws, setting.usual)

    def _inputs(self, setting: Setting, dtype: torch.dtype) -> list[Any]:
        return [
            setting.change(value.to(dtype)).clone() if value.is_floating_point() else value
            for value in self.problem.get_inputs()
        ]


def traits(pairs: Mapping[str, list[tuple[Results, Results]]], changed: Mapping[str, str]) -> Iterator[str]:
    """Specific causes that the results show."""
    both = [pair for mode in pairs.values() for pair in mode]
    for key in (key for key in changed if key.startswith(("grad ", "output["))):
        values = [(exact[key], actual[key]) for exact, actual in both]
        if any(b is None for _, b in values):
            yield f"none {key}"
            continue
        if any(b is not None and not bool(b.isfinite().all()) for _, b in values):
            yield f"nan {key}"
        if all(b is not None and not bool(b.any()) for _, b in values):
            yield f"zero {key}"
        if _proportional([(a, b) for a, b in values if a is not None and b is not None]):
            yield f"scaled {key}"
    for name in (key.removeprefix("grad ") for exact, _ in both[:1] for key in exact if key.startswith("grad ")):
        for question in ("linear", "second backward", "expanded grad_output", "strided grad_output"):
            key, plain = f"protocol {question} {name}", f"grad {name}"
            if question in ("linear", "second backward"):
                if any(not _same(actual, actual, plain, key) for _, actual in both):
                    yield f"{question} {name}"
            elif any(_same(e, a, plain) and not _same(e, a, key) for e, a in both):
                yield f"layout {name}"
    wrong = {
        mode: [key for key in changed if any(not _same(a, b, key) for a, b in results)]
        for mode, results in pairs.items()
    }
    if pairs["eval"] and not all(wrong.values()):
        yield "one mode"


def _proportional(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    """Whether each second tensor is the first times the same number."""
    ratios = []
    for a, b in pairs:
        if a.shape != b.shape or a.dtype != b.dtype or not bool(a.any()):
            return False
        ratio = float((a * b).sum() / (a * a).sum())
        if not float((b - ratio * a).norm()) < 1e-6 * float(b.norm()):
            return False
        ratios.append(ratio)
    return bool(ratios) and max(ratios) - min(ratios) < 1e-6 * max(map(abs, ratios))


def _same(exact: Results, actual: Results, key: str, other_key: str | None = None) -> bool:
    a, b = exact.get(key), actual.get(other_key or key)
    if a is None or b is None:
        return a is b
    return a.shape == b.shape and a.dtype == b.dtype and bool(torch.allclose(a, b, rtol=1e-6, atol=1e-12))


@contextmanager
def limit(seconds: int) -> Iterator[None]:
    """Raises TimeoutError after some seconds, in the main thread."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"{seconds} s")

    earlier = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, earlier)
