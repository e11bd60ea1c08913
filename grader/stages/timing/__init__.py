"""How fast is it? Reference and candidate in turn, on fresh inputs, every timed output compared."""

from grader.stages.timing.judge import TimingJudgement, judge_timing
from grader.stages.timing.light import SpeedOfLight, too_fast

__all__ = ["SpeedOfLight", "TimingJudgement", "judge_timing", "too_fast"]
