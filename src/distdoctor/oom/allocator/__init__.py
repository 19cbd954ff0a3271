"""What torch's CUDA caching allocator would reserve for a given order of allocations. Pure: no torch."""
