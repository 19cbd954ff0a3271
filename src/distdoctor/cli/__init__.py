"""One thin module per command: options, call, render, exit code. No rules, no torch."""
