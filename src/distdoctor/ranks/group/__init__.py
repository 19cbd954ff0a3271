"""Ranks that work together with torch: importing it, meeting at a store, forming the process group, in step to the report."""
