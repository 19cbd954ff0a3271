"""Checks of out-of-memory messages."""
