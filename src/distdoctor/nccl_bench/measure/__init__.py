"""What runs in every rank: groups, loops, matrices. The only modules here that import torch."""
