"""What monitoring says of GPUs: a lead, since it holds no step times."""
