"""Megatron-LM: arguments in scripts and YAML, Megatron-DeepSpeed and Megatron-Bridge."""
