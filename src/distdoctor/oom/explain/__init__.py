"""What out-of-memory events say: one cause each, a verdict, tables, fixes that the numbers support."""
