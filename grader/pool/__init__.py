"""Grades on several devices at once: a process for each, or an actor of a Ray cluster."""

from grader.pool.place import PlaceState
from grader.pool.pool import GraderPool

__all__ = ["GraderPool", "PlaceState"]
