"""Describes what the wrong elements of a tensor have in common, and what this says about the mistake."""
