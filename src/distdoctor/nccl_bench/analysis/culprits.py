"""Who caused what the findings tell: rank, host, local rank, GPU and NIC port, with victims folded."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.ranks.blame import blame
from distdoctor.report.model import Confidence, Culprit, Finding, Severity

# Findings that name somebody, in the order in which they explain one another: who is gone, before who is slow.
_NAMING = (
    "bench-stopped",
    "bench-wrong-data",
    "bench-late-rank",
    "bench-slow-host",
    "bench-slow-group",
    "bench-slow-link",
)

# Culprits of one report. Our own bound: more of them are a group, which its finding lists.
MAX_CULPRITS = 16


def culprits_of(facts: BenchFacts, findings: Sequence[Finding]) -> tuple[Culprit, ...]:
    """Culprits of one run, the surest first, then its victims as one.

    A lead (low confidence) names nobody, nor does info, an ignored finding, or one that leaves open which of two ends
    it is. A group of hosts is in its finding alone.
    """
    found: dict[tuple[int | None, str | None], Culprit] = {}
    for check in _NAMING:
        for finding in findings:
            if finding.id == check and _names(finding):
                for culprit in _of(facts, finding):
                    found.setdefault((culprit.rank, culprit.host), culprit)
    kept = tuple(found.values())[:MAX_CULPRITS]
    return kept + _victims(facts, kept)


def _names(finding: Finding) -> bool:
    return (
        finding.ignored is None
        and finding.severity is not Severity.INFO
        and finding.confidence is not Confidence.LOW
        and not finding.fingerprint.startswith(_OF_NOBODY)
    )


_OF_NOBODY = (
    "bench-slow-link",
    "bench-slow-host:group",
    "bench-slow-host:islands",
    "bench-slow-host:rail",
    "bench-slow-group:rail",
    "bench-slow-group:mesh",
    "bench-slow-group:together",
)
"""A path between two ends, or what many hosts share: no host or rank of its own."""


def _of(facts: BenchFacts, finding: Finding) -> list[Culprit]:
    scope = finding.scope
    if _about_whole_host(facts, finding):
        return [
            Culprit(host=host, nic_port=_port_on(scope.links, host), why=finding.title)
            for host in scope.hosts
        ]
    culprits = []
    for rank in scope.ranks:
        place = facts.place_of(rank)
        host = place.host if place is not None else next(iter(scope.hosts), None)
        culprits.append(
            Culprit(
                rank=rank,
                host=host,
                pod=place.pod if place is not None else None,
                local_rank=place.local_rank if place is not None else None,
                gpu=place.gpu if place is not None else None,
                nic_port=_port_on(scope.links, host),
                why=finding.title,
            )
        )
    return culprits


def _about_whole_host(facts: BenchFacts, finding: Finding) -> bool:
    """All ranks of a host that has several; a run on one host puts its host on every finding, which accuses nobody."""
    scope = finding.scope
    if finding.id not in ("bench-slow-host", "bench-slow-group", "bench-late-rank") or len(scope.hosts) != 1:
        return False
    if not scope.ranks:
        return True
    on_host = {place.rank for place in facts.places if place.host == scope.hosts[0]}
    return len(on_host) > 1 and set(scope.ranks) == on_host


def _port_on(links: Sequence[str], host: str | None) -> str | None:
    """The port, when the finding names exactly one of the host."""
    ports = [link.removeprefix(f"{host} ") for link in links if host and link.startswith(f"{host} ")]
    ports = [port for port in ports if not port.startswith(("->", "<->"))]
    return ports[0] if len(ports) == 1 else None


def _victims(facts: BenchFacts, culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Ranks that only waited for those who are lost, or went after them."""
    if facts.stopped is None or not culprits:
        return ()
    told = blame(facts.stopped)
    if not told.culprits:
        return ()
    accused = {each.rank for each in told.culprits} | {each.rank for each in culprits}
    waited = {*facts.stopped.inside, *(each.rank for each in told.victims)} - accused
    if not waited:
        return ()
    why = "waited for the rank that is missing, or ended after it"
    return (Culprit(role="victim", ranks=tuple(sorted(waited)), why=why),)
