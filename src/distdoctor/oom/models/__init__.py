"""Models: presets, Hugging Face configs, sizes given as options."""
