"""The report: one model, its codec, its renderers. Knows nothing of any diagnosis."""
