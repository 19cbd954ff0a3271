"""Timing that people already have becomes facts: one file for each kind of evidence, listed in `all.py`."""
