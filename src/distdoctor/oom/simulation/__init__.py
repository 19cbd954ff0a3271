"""`oom simulate`: training programs under fake tensors and a fake process group, in child processes."""
