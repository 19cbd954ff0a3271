"""Who comes late to collectives, who waits, and which links are slow? Rows of collectives in, ranks out."""
