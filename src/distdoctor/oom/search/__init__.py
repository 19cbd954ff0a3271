"""What would make a job fit: changes, their combinations, what they cost, and the words for whoever makes them."""
