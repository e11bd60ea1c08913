"""What both training loops share: the source in a completion, and the reward of a batch of completions."""

from __future__ import annotations

import re
from collections.abc import Sequence

from grader import Client, GraderPool, reward

FENCED = re.compile(r"```(?:python)?\n(.*?)```", re.DOTALL)


def source_of(completion: str | list[dict[str, str]]) -> str:
    """The last fenced block of a text or of a conversation's last message; empty without one."""
    text = completion if isinstance(completion, str) else completion[-1]["content"]
    blocks = FENCED.findall(text)
    return blocks[-1] if blocks else ""


def rewards(pool: GraderPool | Client, problems: Sequence[str], sources: Sequence[str]) -> list[float | None]:
    """The reward of each source for its problem, in their order; None says nothing about the source.

    Verdicts come in the order in which they are reached, so that `sample` tells whose one is.
    """
    work = [
        {"problem": problem, "source": source, "sample": index}
        for index, (problem, source) in enumerate(zip(problems, sources, strict=True))
    ]
    found: dict[int, float | None] = {}
    for verdict in pool.grade_many(work):
        assert verdict.sample is not None
        found[verdict.sample] = reward(verdict)
    return [found.get(index) for index in range(len(work))]  # none for what was cancelled or took too long
