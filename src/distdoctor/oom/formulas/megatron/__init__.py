"""Tensors that Megatron-LM, Transformer Engine and PyTorch allocate in training, as formulas."""
