"""Times reference and candidate in turn on fresh values, and compares every timed result."""
