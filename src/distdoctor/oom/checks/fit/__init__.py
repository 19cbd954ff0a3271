"""Checks of `oom fit`."""
