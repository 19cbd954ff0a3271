"""What does one series of times show, step by step of a whole job? No ranks here."""
