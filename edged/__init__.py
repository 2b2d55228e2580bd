"""edged: a dependable small language model on a small board."""

__version__ = "0.1.0"
