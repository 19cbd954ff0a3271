"""`oom reproduce`: training programs with real tensors and real collectives, one rank a process."""
