"""What can be known about one process on one host: frozen types, one file a topic. Nothing here reads anything."""
