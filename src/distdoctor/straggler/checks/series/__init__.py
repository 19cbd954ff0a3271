"""What a series of step times of the whole job says: its level, single stalls, rhythms. It names no rank."""
