"""Checks of a simulation."""
