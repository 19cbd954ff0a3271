"""Private and unstable APIs of torch, one function each: the versions they were seen in, and None where they are absent."""
