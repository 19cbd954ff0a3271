"""Every formula of the estimate, each with its source. Pure arithmetic over shapes and degrees, in bytes."""
