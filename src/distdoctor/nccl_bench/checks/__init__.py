"""Pure functions from a benchmark's facts to findings; one topic a file."""
