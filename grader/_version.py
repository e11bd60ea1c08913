"""The package's version, in its own module so that importing it does not import the package root."""

__version__ = "0.1.0"
