"""Describes what the wrong elements of a tensor have in common, and what this says about the mistake."""

from grader.grading.patterns.pattern import Pattern
from grader.grading.patterns.search import find_output_pattern, find_pattern

__all__ = ["Pattern", "find_output_pattern", "find_pattern"]
