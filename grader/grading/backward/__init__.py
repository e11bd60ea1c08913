"""Does the backward match? Vector-Jacobian products against float64, then experiments that find the cause."""

from grader.grading.backward.judge import BackwardJudgement, judge_backward

__all__ = ["BackwardJudgement", "judge_backward"]
