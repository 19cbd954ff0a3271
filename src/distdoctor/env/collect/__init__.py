"""Collectors: they ask the machine and give facts. They decide nothing."""
