"""How fast is it? Reference and candidate in turn, on fresh inputs, every timed output compared."""

from grader.stages.timing.judge import TimingJudgement, judge_timing

__all__ = ["TimingJudgement", "judge_timing"]
