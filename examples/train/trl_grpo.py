"""A reward function for TRL's GRPOTrainer.

    python examples/train/trl_grpo.py

runs it on the CPU with a stub policy: three fixed completions. To train, give it to the trainer:

    pool = GraderPool(gpus=[6, 7], quick=True)  # GPUs that no training process uses
    # or Client("http://192.0.2.1:8000", token), with `grader serve --submit --quick` on a machine of its own
    trainer = GRPOTrainer(model=..., reward_funcs=kernel_reward(pool), train_dataset=dataset, args=...)

The dataset has the columns `prompt` and `problem`; TRL passes each further column as a list, one entry per completion.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from completions import rewards, source_of

from grader import Client, GraderPool

ROOT = Path(__file__).resolve().parents[2]


def kernel_reward(pool: GraderPool | Client) -> Callable[..., list[float | None]]:
    """The function that TRL calls once a step. TRL leaves a sample out whose reward is None."""

    def graded(prompts: list[Any], completions: list[Any], problem: list[str], **_columns: Any) -> list[float | None]:
        return rewards(pool, problem, [source_of(completion) for completion in completions])

    return graded


def main() -> None:
    """One step with fixed completions: a right kernel, one without a backward, and no kernel."""
    kernel = (ROOT / "starter" / "submissions" / "me" / "scale_silu.py").read_text()
    forward_only = kernel.replace(
        "return ScaleSilu.apply(x, self.scale)", "return ScaleSilu.apply(x, self.scale).detach()"
    )
    completions = [
        [{"role": "assistant", "content": f"Here it is:\n```python\n{kernel}```"}],
        [{"role": "assistant", "content": f"```python\n{forward_only}```"}],
        [{"role": "assistant", "content": "I cannot do that."}],
    ]
    with GraderPool(workers=1, device="cpu", quick=True, problems=[ROOT / "starter" / "problems"]) as pool:
        reward = kernel_reward(pool)
        values = reward(
            prompts=[[{"role": "user", "content": "Write a kernel."}]] * 3,
            completions=completions,
            completion_ids=[[1], [2], [3]],
            trainer_state=None,
            problem=["scale_silu"] * 3,
        )
    print(*values)


if __name__ == "__main__":
    main()
