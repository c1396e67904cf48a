"""Which Cairn this is; below everything, so that every room may say it."""

__version__ = "0.1.0"
