"""The version of this program, its one home."""

__version__ = "0.1.0"
