"""One file for each parallel strategy: what it shards, what it replicates, what it costs in memory."""
