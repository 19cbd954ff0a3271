"""The same facts from tables and logs that people have."""
