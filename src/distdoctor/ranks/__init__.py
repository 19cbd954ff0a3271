"""Who am I among the ranks, starting them, waiting with a deadline, gathering, and who is missing."""
