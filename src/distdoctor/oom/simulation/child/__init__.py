"""What runs in a child process of `oom simulate`. Imports torch."""
