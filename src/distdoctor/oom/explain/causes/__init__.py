"""Why memory was refused: rules over one event, by whose memory it is."""
