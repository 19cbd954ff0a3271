"""The processes of a job and their facts; what a host's leader collected is lent to its other ranks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distdoctor.env.facts.all import EnvFacts

HOST_SECTIONS = ("host", "container", "gpus", "network", "kernel_log")
"""Collected once per host, by its leader."""

# What decides which files `import torch` takes, beside interpreter and folder.
_LIBRARY_VARIABLES = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH")


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process of the job: its rank (None outside a job), its host, its facts."""

    rank: int | None
    host: str
    facts: EnvFacts
    clock_offset_s: float | None = None
    """Its wall clock minus the clock of the shared folder's server."""


def torch_key(facts: EnvFacts) -> tuple[str | None, ...]:
    """Equal for processes whose `import torch` takes the same files: one probe child serves them all."""
    environment = facts.variables.environment if facts.variables else {}
    return (
        facts.python.executable if facts.python else None,
        facts.torch.path if facts.torch else None,
        *(environment.get(name) for name in _LIBRARY_VARIABLES),
    )


def share_host_sections(members: Sequence[Member]) -> tuple[Member, ...]:
    """Members with the host's sections lent to all its ranks.

    A torch probe is lent to the ranks that ran none and would import the same files.
    """
    sections: dict[str, dict[str, object]] = {}
    probes: dict[tuple[str | None, ...], EnvFacts] = {}
    for member in members:
        known = sections.setdefault(member.host, {})
        for name in HOST_SECTIONS:
            section = getattr(member.facts, name)
            if section is not None:
                known.setdefault(name, section)
        if member.facts.torch_probe is not None:
            probes.setdefault((member.host, *torch_key(member.facts)), member.facts)
    return tuple(_lend(member, sections[member.host], probes) for member in members)


def _lend(
    member: Member, sections: Mapping[str, object], probes: Mapping[tuple[str | None, ...], EnvFacts]
) -> Member:
    facts = member.facts
    changes = {name: section for name, section in sections.items() if getattr(facts, name) is None}
    if facts.torch_probe is None:
        lender = probes.get((member.host, *torch_key(facts)))
        if lender is not None:
            changes["torch_probe"] = lender.torch_probe
            if lender.nccl is not None:
                changes["nccl"] = lender.nccl
    if not changes:
        return member
    # The sections' types are those of EnvFacts' own fields.
    return dataclasses.replace(member, facts=dataclasses.replace(facts, **changes))  # type: ignore[arg-type]
