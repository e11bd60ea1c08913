"""Checks for references that draw random numbers, such as dropout, whose values cannot be compared."""
