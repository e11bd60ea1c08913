"""Judges whether a verdict names the cause: each code holds only if the measured effect of the mutation has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

from fuzz.mutants.edits import Mutant
from fuzz.mutants.effect import Effect

Name = Literal["fits", "vague", "false"]

Holds = Callable[[Mutant, Effect], bool]


def _trait(*words: str) -> Holds:
    return lambda mutant, effect: any(trait.startswith(words) for trait in effect.traits)


def _changed(*words: str) -> Holds:
    return lambda mutant, effect: any(key.startswith(words) for key in effect.changed)


def _kind(*kinds: str) -> Holds:
    return lambda mutant, effect: mutant.kind in kinds


SPECIFIC: dict[str, Holds] = {
    "grad_zero": _trait("zero grad"),
    "grad_scaled": lambda mutant, effect: mutant.kind == "precision" or _trait("scaled grad")(mutant, effect),
    "grad_nan": _trait("nan"),
    "output_nan": _trait("nan"),
    "input_grad_none": _trait("none grad"),
    "param_grad_none": _trait("none grad"),
    "output_detached": _trait("none grad"),
    "low_precision": _kind("precision"),
    "ignores_grad_output": lambda mutant, effect: mutant.kind == "memoised" or _trait("linear")(mutant, effect),
    "stale_saved_state": lambda mutant, effect: mutant.kind == "memoised" or _trait("second backward")(mutant, effect),
    "accumulation_broken": lambda mutant, effect: (
        mutant.kind in ("memoised", "reused_buffer") or _trait("second backward")(mutant, effect)
    ),
    "saved_tensor_mutated": _changed("protocol unchanged"),
    "inputs_modified": _changed("protocol unchanged"),
    "grad_output_modified": _changed("protocol unchanged grad_output"),
    "output_overwritten": _changed("protocol lifetime"),
    "undefined_grad_output": _changed("protocol only"),
    "assumes_contiguous_grad_output": _trait("layout"),
    "train_eval_mismatch": _trait("one mode"),
    "buffers_not_updated": _changed("buffer"),
    "stale_output": _kind("memoised", "reused_buffer", "returned_zero"),
    "nondeterministic_grad": _kind("memoised", "reused_buffer", "uninitialised", "stale_state", "in_place"),
    "reads_unwritten_memory": _kind("uninitialised"),
    "inconsistent_with_forward": lambda mutant, effect: mutant.problem.startswith("dropout"),
    "output_distribution": lambda mutant, effect: mutant.problem.startswith("dropout"),
    "gelu_tanh_for_erf": lambda mutant, effect: "gelu" in mutant.problem and mutant.kind == "function",
    "gelu_erf_for_tanh": lambda mutant, effect: "gelu" in mutant.problem and mutant.kind == "function",
}
"""Codes that name a cause, and when that cause is there."""
BETTER: dict[str, tuple[str, ...]] = {
    "zero grad": ("grad_zero",),
    "scaled grad": ("grad_scaled", "grad_zero"),
    "none grad": ("input_grad_none", "param_grad_none", "output_detached", "unexpected_gradient"),
}
"""Traits of a gradient with the codes that name them."""


def judge(mutant: Mutant, effect: Effect, status: str, errors: Sequence[tuple[str, str]]) -> tuple[Name, str]:
    """(whether the errors, as (code, message), name what the mutation does, why not)."""
    outputs = [key for key in effect.changed if key.startswith(("output", "buffer", "protocol lifetime"))]
    gradients = {key.removeprefix("grad ") for key in effect.changed if key.startswith("grad ")}
    codes = [code for code, _ in errors]
    for code in codes:
        if code in SPECIFIC and not SPECIFIC[code](mutant, effect):
            return "false", f"{code} is not what it does"
    if status == "wrong_output" and not outputs and "inputs_modified" not in codes:
        return "false", "the forward is right"
    if status in ("wrong_backward", "missing_backward") and outputs and "random" not in mutant.problem:
        return "vague", "the forward is wrong too"
    if len(gradients) and status == "wrong_backward" and set(codes) == {"grad_wrong"}:
        for trait, better in BETTER.items():
            if any(one.startswith(trait) for one in effect.traits) and not set(codes) & set(better):
                return "vague", f"{trait} is not named"
        if all(re.search(r"no pattern was found", message) for _, message in errors):
            return "vague", "no pattern"
    return "fits", ""
