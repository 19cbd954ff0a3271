"""Pure arithmetic over measured times and bandwidths."""
