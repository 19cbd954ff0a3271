"""Published figures with their sources, and rules about hardware."""
