"""Memory snapshots of torch: read without trust, and what they say at the moment of the failure."""
