"""How fast is it? Reference and candidate in turn, on fresh inputs, every timed output compared."""

from grader.grading.timing.baselines import BaselineStore, measure
from grader.grading.timing.caller import flush_bytes
from grader.grading.timing.judge import TimingJudgement, judge_timing
from grader.grading.timing.roofline import SpeedOfLight, too_fast

__all__ = ["BaselineStore", "SpeedOfLight", "TimingJudgement", "flush_bytes", "judge_timing", "measure", "too_fast"]
