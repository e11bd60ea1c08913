"""The package's version, in a file of its own so that importing it does not import the package."""

__version__ = "0.1.0"
