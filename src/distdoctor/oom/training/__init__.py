"""Real training programs of one rank: a model of a given shape under each parallel strategy. Imports torch.

The same program runs under fake tensors (`oom simulate`), with real tensors and no communication (the control of the
accuracy table), and with real collectives (`oom reproduce`).
"""
