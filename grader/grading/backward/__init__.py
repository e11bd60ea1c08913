"""Judges the backward: vector-Jacobian products against float64, then experiments that find causes."""

from grader.grading.backward.judge import BackwardJudgement, judge_backward
from grader.grading.backward.other_inputs import judge_other_gradients

__all__ = ["BackwardJudgement", "judge_backward", "judge_other_gradients"]
