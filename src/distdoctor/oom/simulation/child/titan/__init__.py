"""TorchTitan's own model, parallelisms, loss and optimizer in the child of a simulation. Imports torchtitan."""
