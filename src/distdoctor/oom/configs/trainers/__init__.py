"""Trainers on top of torch: Hugging Face Trainer, axolotl, LLaMA-Factory."""
