"""Typed facts of a benchmark: what was measured or read, where, and on what."""
