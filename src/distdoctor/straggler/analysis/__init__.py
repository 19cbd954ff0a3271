"""Pure functions over arrays of times: no files, no clocks, no words for people."""
