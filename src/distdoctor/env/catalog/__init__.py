"""Data that checks look things up in: NCCL variables, drivers, known bugs, Xid codes."""
