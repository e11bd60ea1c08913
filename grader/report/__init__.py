"""Verdicts and leaderboards for people and for programs."""
