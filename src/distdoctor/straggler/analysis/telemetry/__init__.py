"""Which GPU is unlike the others of its job? Samples of monitoring, which holds no step times."""
