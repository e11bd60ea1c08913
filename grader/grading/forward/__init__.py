"""Judges the forward: outputs against float64, then probes of what they depend on."""

from __future__ import annotations

from grader.grading.forward import input_sensitivity, output_dependence, output_lifetime
from grader.grading.forward.judge import ForwardJudgement, judge_forward

__all__ = ["ForwardJudgement", "input_sensitivity", "judge_forward", "output_dependence", "output_lifetime"]
