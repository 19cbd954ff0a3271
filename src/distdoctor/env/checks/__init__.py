"""Checks of a host and process: pure functions from facts to findings, one topic a file."""
