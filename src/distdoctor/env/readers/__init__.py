"""Readers: they give the same facts from text that people paste into tickets."""
