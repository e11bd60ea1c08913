"""A grader for GPU kernels that nobody has read yet."""

__version__ = "0.1.0"
