"""Data with sources: GPUs and their memory."""
