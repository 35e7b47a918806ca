"""The version, on its own: nothing heavy comes with it."""

__version__ = "0.1.0"
