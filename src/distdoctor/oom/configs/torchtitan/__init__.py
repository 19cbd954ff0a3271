"""TorchTitan: TOML of all generations, and Python read as a syntax tree."""
