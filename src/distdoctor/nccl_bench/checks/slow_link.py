"""Is the way between two hosts slow, in one direction or both, though both are fast with others?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.matrix_score import Kind, Suspect
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed
from distdoctor.nccl_bench.checks.matrix_view import (
    View,
    busy_evidence,
    confidence_of,
    confirmation_evidence,
    judged,
    nothing_to_compare,
    percent,
    rest_of,
    score_evidence,
    severity_of,
    speed_evidence,
    view_of,
)
from distdoctor.nccl_bench.checks.ports import gpus_of, link_names, look_at_ports, look_inside
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.report.model import Action, Fault, Scope, Team
from distdoctor.report.names import MAX_NAME_OF_TWO, short_host

KINDS = (Kind.LINK, Kind.DIRECTION)


def check_slow_link(facts: BenchFacts) -> Sequence[Outcome]:
    """A finding for each link or direction that stayed slow; of two hosts neither is blamed."""
    view = view_of(facts, KINDS)
    if not isinstance(view, View):
        return [view]
    if (unseen := nothing_to_compare(facts, view)) is not None:
        return [unseen]
    found: list[Outcome] = [_found(facts, view, each) for each in view.suspects]
    detail = f"{judged(view)}: no single link stays behind"
    if view.score.num_hosts == 2:
        detail += "; of two hosts only the two directions can be compared with each other"
    return found + rest_of(facts, view, Passed(detail=detail))


def _found(facts: BenchFacts, view: View, suspect: Suspect) -> Found:
    source, target = _ends(suspect)
    one = suspect.candidate
    on_gpu = any(place.device != "cpu" for place in facts.places if place.rank in suspect.ranks)
    if suspect.kind is Kind.LINK:
        who = f"{source} to {target} and back"
    else:
        who = f"{source} to {target}"
    others = f"{target} to {source}" if one.only_two_hosts else "the same ends with others"
    scores = () if one.only_two_hosts or one.is_inside else score_evidence(view, suspect.hosts)
    inside = "-inside" if one.is_inside else ""
    return Found(
        key=f"two-hosts{inside}" if one.only_two_hosts else f"{suspect.kind.value}{inside}",
        title=_title(suspect),
        severity=severity_of(facts, suspect),
        confidence=confidence_of(facts, suspect),
        evidence=(
            speed_evidence(view, suspect, who, others),
            *confirmation_evidence(view, suspect),
            *scores,
            *busy_evidence(facts, suspect.hosts),
        ),
        explanation=_explanation(suspect),
        actions=_actions(facts, suspect),
        scope=Scope(
            ranks=suspect.ranks,
            hosts=tuple(dict.fromkeys(suspect.hosts)),
            gpus=gpus_of(facts, suspect.ranks) if one.is_inside else (),
            links=() if one.is_inside else _links(facts, suspect),
        ),
        cause_class=("gpu:pair_link_fault" if on_gpu else "host:slow_rank")
        if one.is_inside
        else "network:slow_link",
        fault=(Fault.GPU if on_gpu else Fault.HOST) if one.is_inside else Fault.NETWORK,
    )


def _ends(suspect: Suspect) -> tuple[str, str]:
    if suspect.ranks:
        return f"rank {suspect.ranks[0]}", f"rank {suspect.ranks[1]}"
    return suspect.hosts[0], suspect.hosts[1]


def _title(suspect: Suspect) -> str:
    source, target = (short_host(end, MAX_NAME_OF_TWO) for end in _ends(suspect))
    part = percent(suspect.ratio)
    if suspect.kind is Kind.LINK:
        return f"{source} and {target}: {part} of their speed with others"
    if suspect.candidate.only_two_hosts:
        return f"{source} to {target}: {part} of the speed back"
    return f"{source} to {target}: {part} of their speed with others"


def _explanation(suspect: Suspect) -> str:
    if suspect.candidate.only_two_hosts:
        return (
            f"Two hosts cannot tell which end it is: what {suspect.hosts[0]} sends and what {suspect.hosts[1]} "
            "receives take the same way. A third host decides: the slow end is slow with it too."
        )
    if suspect.candidate.is_inside:
        return (
            "One direction between two ranks of a host is slow, the way back is not: not how they are joined."
        )
    both = "" if suspect.kind is Kind.LINK else " The way back is not affected."
    return (
        "Both ends are far faster with other hosts, so it is not their NICs as such: the path between "
        f"them (a switch port, an uplink, a route that collides with other traffic).{both} A collective that uses "
        "this pair runs at its pace."
    )


def _actions(facts: BenchFacts, suspect: Suspect) -> tuple[Action, ...]:
    source, target = suspect.hosts[0], suspect.hosts[-1]
    if suspect.candidate.is_inside:
        return (look_inside(facts, source, gpus_of(facts, suspect.ranks)),)
    ranks = suspect.ranks or None
    if suspect.candidate.only_two_hosts or ranks:
        third = Action(
            team=Team.JOB_OWNER,
            text=f"measure {source} and {target} together with a third host, which tells the two apart",
            command="srun -N 3 --ntasks-per-node=1 distdoctor nccl-bench --matrix all",
        )
        return (third, look_at_ports(facts, source, ranks), look_at_ports(facts, target, ranks))
    route = Action(
        team=Team.NETWORK,
        text=f"the route from {source} to {target}: uplinks that it crosses, their errors, ECMP or adaptive routing",
        command="ibtracert SOURCE_LID TARGET_LID   # InfiniBand; Ethernet: traceroute and the switches' counters",
    )
    return (route, look_at_ports(facts, source), look_at_ports(facts, target))


def _links(facts: BenchFacts, suspect: Suspect) -> tuple[str, ...]:
    arrow = "<->" if suspect.kind is Kind.LINK else "->"
    way = f"{suspect.hosts[0]} {arrow} {suspect.hosts[-1]}"
    ends = dict.fromkeys(suspect.hosts)
    ports = tuple(name for host in ends for name in link_names(facts, host, suspect.ranks or None))
    return (way, *ports)


CHECK = BenchCheck(
    id="bench-slow-link", title="each link and direction beside the others", run=check_slow_link
)
