"""The package's version, alone in a file so that a module can have it without importing the package root."""

__version__ = "0.1.0"
