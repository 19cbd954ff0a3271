"""From what the analysis found to findings with evidence and next steps. Pure."""
