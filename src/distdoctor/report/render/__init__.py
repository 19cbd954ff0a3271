"""Four renderers and the one line: each takes a report and gives text."""
