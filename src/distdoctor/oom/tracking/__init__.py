"""Follows every storage of a program of torch from its birth to its death. Imports torch."""
