"""Checks of estimates, launch configurations, messages and snapshots. Pure."""
