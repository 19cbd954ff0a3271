"""Checks of what was reproduced on real ranks."""
