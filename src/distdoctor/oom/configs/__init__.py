"""Readers of launch configurations: files that say how a job is to run. Nothing in them is executed."""
