"""Checks of launch configurations."""
