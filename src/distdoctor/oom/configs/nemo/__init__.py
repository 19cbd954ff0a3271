"""NeMo's YAML, with OmegaConf's references."""
