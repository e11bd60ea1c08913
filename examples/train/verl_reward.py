"""A reward manager for verl, and a reward function for its reward loop.

    python examples/train/verl_reward.py

runs the manager on the CPU with a stub policy: three fixed completions.

verl's reward loop calls the function for one completion, from several processes, which share a server: start `grader
serve --submit --quick --gpus all`, set GRADER_SERVER to its address and GRADER_TOKEN to its token, and give verl

    custom_reward_function.path=examples/train/verl_reward.py custom_reward_function.name=compute_score

Before the reward loop, verl (read at b178a3cd, January 2026) calls a manager with a whole batch, in one process. It
grades the batch on a pool of its own, whose options are in `POOL`, unless GRADER_SERVER names a server:

    reward_manager.source=importlib reward_manager.name=KernelRewardManager
    reward_manager.module.path=examples/train/verl_reward.py

Each row of the data has `extra_info={"problem": ID}`.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parent))

from completions import rewards, source_of

from grader import Client, GraderPool

ROOT = Path(__file__).resolve().parents[2]
POOL: dict[str, Any] = {"gpus": "all", "quick": True}


@cache
def grader() -> GraderPool | Client:
    """The server that GRADER_SERVER names, else a pool of this process; made at the first call."""
    server = os.environ.get("GRADER_SERVER")
    return Client(server) if server else GraderPool(**POOL)


def compute_score(
    data_source: str, solution_str: str, ground_truth: object, extra_info: dict[str, Any] | None = None, **_: Any
) -> float:
    """The reward of one completion; 0 where the verdict says nothing about it."""
    (value,) = rewards(grader(), [(extra_info or {})["problem"]], [source_of(solution_str)])
    return value or 0.0


class KernelRewardManager:
    """Called with a batch; the reward of a completion stands at its last token."""

    def __init__(
        self,
        tokenizer: Any,
        num_examine: int,
        compute_score: object = None,
        reward_fn_key: str = "data_source",
        **_: Any,
    ) -> None:
        self.tokenizer = tokenizer

    def __call__(self, data: Any, return_dict: bool = False) -> Any:
        """`data` is a DataProto. A completion whose verdict says nothing gets the mean of its group: no advantage."""
        responses = data.batch["responses"]
        lengths = data.batch["attention_mask"][:, -responses.shape[1] :].sum(dim=1).tolist()
        texts = [
            self.tokenizer.decode(row[:length], skip_special_tokens=True)
            for row, length in zip(responses, lengths, strict=True)
        ]
        problems = [info["problem"] for info in data.non_tensor_batch["extra_info"]]
        values = rewards(grader(), problems, [source_of(text) for text in texts])
        filled = with_means(values, list(data.non_tensor_batch.get("uid", problems)))
        tensor = torch.zeros_like(responses, dtype=torch.float32)
        for row, (value, length) in enumerate(zip(filled, lengths, strict=True)):
            tensor[row, max(length, 1) - 1] = value
        extra = {"graded": [value is not None for value in values]}
        return {"reward_tensor": tensor, "reward_extra_info": extra} if return_dict else tensor


def with_means(values: list[float | None], groups: list[str]) -> list[float]:
    """The values, with the mean of the rest of its group in place of None; 0 in a group without a value."""
    known = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        if value is not None:
            known[group].append(value)
    means = {group: sum(some) / len(some) for group, some in known.items()}
    return [means.get(group, 0.0) if value is None else value for value, group in zip(values, groups, strict=True)]


class StubTokenizer:
    """A token is a character."""

    def decode(self, tokens: torch.Tensor, skip_special_tokens: bool = True) -> str:
        return "".join(chr(token) for token in tokens.tolist())


class StubBatch:
    """What the manager uses of a DataProto."""

    def __init__(self, prompts: list[str], completions: list[str], problems: list[str]) -> None:
        rows = [[ord(character) for character in text] for text in completions]
        width, before = max(map(len, rows)), max(map(len, prompts))
        responses, mask = torch.zeros(len(rows), width, dtype=torch.long), torch.zeros(len(rows), before + width)
        for number, row in enumerate(rows):
            responses[number, : len(row)] = torch.tensor(row)
            mask[number, before - len(prompts[number]) : before + len(row)] = 1
        self.batch = {"responses": responses, "attention_mask": mask.long()}
        self.non_tensor_batch = {"extra_info": [{"problem": problem} for problem in problems], "uid": prompts}


def main() -> None:
    """One batch with fixed completions: a right kernel, one without a backward, and no kernel."""
    POOL.update({"gpus": None, "workers": 1, "device": "cpu", "problems": [ROOT / "starter" / "problems"]})
    kernel = (ROOT / "starter" / "submissions" / "me" / "scale_silu.py").read_text()
    forward_only = kernel.replace("(x, self.scale)", "(x, self.scale).detach()")
    completions = [f"```python\n{kernel}```", f"```python\n{forward_only}```", "I cannot do that."]
    data = StubBatch(["Write a kernel."] * 3, completions, ["scale_silu"] * 3)
    found = KernelRewardManager(StubTokenizer(), num_examine=0)(data, return_dict=True)
    print(*found["reward_tensor"].sum(dim=1).tolist())
    grader().close()


if __name__ == "__main__":
    main()
