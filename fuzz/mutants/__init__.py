"""Mutation testing of the grader: seeded faults in right submissions, graded, and counted by class."""
