"""Typed facts: who took how long in which part of which step, as it was recorded or logged."""
