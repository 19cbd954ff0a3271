"""Checks of memory snapshots."""
