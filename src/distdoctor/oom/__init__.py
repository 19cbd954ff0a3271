"""Where the memory goes: estimated under each parallel strategy, and read out of what a job left behind."""
