"""What runs inside a rank. Imports torch."""
