"""What is on this host and in this job, what is wrong with it, and which rank or host differs."""
