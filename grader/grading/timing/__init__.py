"""Times reference and candidate in turn on fresh values, and compares every timed result."""

from grader.grading.timing.baselines import Baselines, BaselineStore, measure_baselines
from grader.grading.timing.judge import TimingJudgement, judge_timing
from grader.grading.timing.roofline import Roofline, above_roofline

__all__ = [
    "BaselineStore",
    "Baselines",
    "Roofline",
    "TimingJudgement",
    "above_roofline",
    "judge_timing",
    "measure_baselines",
]
