"""Stored verdicts in the formats that other programs read."""
