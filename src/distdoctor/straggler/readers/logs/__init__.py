"""What training jobs print: text logs of Megatron-LM, DeepSpeed, TorchTitan, HF Trainer and others become facts.

Most of these lines are printed by one rank for all. They show that a job got slower and since when; who made it slow
they show only where a tool prints a value for each rank.
"""

from __future__ import annotations

from distdoctor.straggler.readers.logs.read import TRAINER_LOG
from distdoctor.straggler.readers.logs.trainer_state import TRAINER_STATE

__all__ = ["TRAINER_LOG", "TRAINER_STATE"]
