"""What was read or resolved, typed: a launch configuration, an out-of-memory event, a snapshot."""
