"""Diagnostics for distributed PyTorch training: a verdict, its evidence and the next step."""

__version__ = "0.1.0"
