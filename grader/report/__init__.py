"""Renders verdicts and leaderboards for people and for programs."""
