"""A user's own module in the child of a simulation: imported, built, wrapped, stepped. Imports torch, and runs their code."""
