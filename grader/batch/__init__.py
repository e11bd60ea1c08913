"""Grades a stream of work against a database: known verdicts are shown, the rest is graded."""

from grader.batch.batch import Audience, Batch

__all__ = ["Audience", "Batch"]
