"""Judges the backward: vector-Jacobian products against float64, then experiments that find causes."""

from grader.grading.backward.judge import BackwardJudgement, judge_backward

__all__ = ["BackwardJudgement", "judge_backward"]
