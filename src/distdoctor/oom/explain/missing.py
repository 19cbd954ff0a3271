"""What the messages do not hold and would decide, asked for by name."""

from __future__ import annotations

from distdoctor.oom.explain.cause import Cause
from distdoctor.oom.explain.devices import record_history
from distdoctor.oom.explain.judged import Explained, has_numbers
from distdoctor.oom.facts.events import CACHING_ALLOCATORS, ON_HOST, Family, Phase
from distdoctor.report.model import MissingEvidence


def missing_evidence(facts: Explained) -> tuple[MissingEvidence, ...]:
    """At most a handful, those first that would change the verdict."""
    lead = facts.lead
    if lead is None:
        return ()
    event = lead.event
    asked: list[MissingEvidence] = []
    if event.family not in ON_HOST and not has_numbers(event) and event.family is not Family.MPS:
        why = "the message holds no sizes"
        if event.family in CACHING_ALLOCATORS:
            why = "the message was cut before its sizes"
        asked.append(
            MissingEvidence(
                what="what the GPU held when memory was refused",
                why=why,
                how="the whole line that begins `CUDA out of memory. Tried to allocate`, or: "
                "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv while the job runs",
            )
        )
    if event.phase is Phase.UNKNOWN and event.family not in ON_HOST:
        asked.append(
            MissingEvidence(
                what="the phase of the job",
                why="no traceback of this rank stands beside the message",
                how="the log of the rank from `Traceback` on, with the step lines before it",
            )
        )
    unlisted = event.family in CACHING_ALLOCATORS and lead.account.process is None and has_numbers(event)
    if unlisted and lead.cause in (Cause.OTHER_PROCESS, Cause.NON_TORCH, Cause.CAPACITY):
        gpu = f" -i {event.gpu}" if event.gpu is not None else ""
        asked.append(
            MissingEvidence(
                what="which processes hold the GPU",
                why="this message lists none (PyTorch before 2.1, or a driver that does not tell)",
                how=f"nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv{gpu} on the host",
            )
        )
    if event.family is Family.HOST_KILL and not event.is_certain_kill:
        asked.append(
            MissingEvidence(
                what="what sent SIGKILL",
                why="a killed process leaves no word",
                how="dmesg -T | grep -iE 'out of memory|oom-kill|killed process', kubectl describe pod, sacct",
            )
        )
    if lead.cause in (Cause.SHARDING_INEFFECTIVE, Cause.CAPACITY, Cause.ACTIVATIONS, Cause.FRAGMENTATION):
        asked.append(
            MissingEvidence(
                what="which tensors hold the memory",
                why="a message gives totals, not tensors",
                how="a memory snapshot: torch.cuda.memory._record_memory_history() at the start, "
                "torch.cuda.memory._dump_snapshot('snapshot.pickle') at the error"
                if event.family not in (Family.MPS, Family.XPU, Family.NPU)
                else record_history(event.family),
            )
        )
    return tuple(asked)
