"""Confirms what a search proposes: simulates the changed job and says what its worst rank allocates and reserves."""

from __future__ import annotations

from distdoctor.errors import UsageError
from distdoctor.oom.search.confirm import Confirmed
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.run import simulated_facts

_MAX_WORDS = 100


def confirm_by_simulation(settings: Settings) -> Confirmed | str:
    """The figures of every kind of rank's worst; why there are none where one could not be simulated."""
    try:
        facts = simulated_facts(settings, None, checks_itself=False)
    except UsageError as error:
        return str(error)[:_MAX_WORDS]
    worst = facts.simulation.worst
    if facts.simulation.failures or worst is None:
        failures = facts.simulation.failures
        return failures[0].reason[:_MAX_WORDS] if failures else "nothing was simulated"
    return Confirmed(
        peak_allocated_bytes=max(role.peak.num_bytes for role in facts.simulation.roles),
        peak_reserved_bytes=max(facts.reserved_bytes(role) for role in facts.simulation.roles),
        seconds=sum(role.cpu_seconds for role in facts.simulation.roles),
    )
