"""What was allocated and freed while a program ran, and what follows from it. Pure: no torch."""
