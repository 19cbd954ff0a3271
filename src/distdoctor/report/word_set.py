"""A set of words, written as running text so that a list of a hundred stays readable in the source."""

from __future__ import annotations


def word_set(text: str) -> frozenset[str]:
    """The words of `text`, split at white space."""
    return frozenset(text.split())
