"""Readers of out-of-memory messages, from torch 1.x to today and from everything around it."""
