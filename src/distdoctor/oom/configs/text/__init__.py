"""Texts as sections with lines: JSON and YAML, read without constructing anything."""
