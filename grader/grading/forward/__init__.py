"""Judges the forward: outputs against float64, then probes of what they depend on."""

from __future__ import annotations

from grader.grading.forward import output_dependence, repeated_forwards, updates
from grader.grading.forward.judge import ForwardJudgement, judge_forward

__all__ = ["ForwardJudgement", "judge_forward", "output_dependence", "repeated_forwards", "updates"]
