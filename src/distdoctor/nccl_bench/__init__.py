"""Is the network what was paid for, and which rank, host or link is slow?"""
