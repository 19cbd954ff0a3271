"""Checks of estimates."""
