"""How fast is it? Reference and candidate in turn, on fresh inputs, every timed output compared."""

from grader.stages.timing.baselines import BaselineStore, measure
from grader.stages.timing.caller import flush_bytes
from grader.stages.timing.judge import TimingJudgement, judge_timing
from grader.stages.timing.light import SpeedOfLight, too_fast

__all__ = ["BaselineStore", "SpeedOfLight", "TimingJudgement", "flush_bytes", "judge_timing", "measure", "too_fast"]
