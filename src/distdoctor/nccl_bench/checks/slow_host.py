"""Is one host, one NIC, one rail or one group of hosts slow with all its partners?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.matrix_score import Direction, Kind, Suspect
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed, not_seen
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
from distdoctor.nccl_bench.checks.ports import gpus_of, link_names, look_at_ports, look_inside, nics_of
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.report.model import Action, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import short_host
from distdoctor.units import fold_ints

KINDS = (Kind.HOST, Kind.RANK, Kind.RAIL, Kind.GROUP, Kind.ISLANDS)

_VERB = {
    Direction.EGRESS: "sends",
    Direction.INGRESS: "receives",
    Direction.BOTH: "sends and receives",
    None: "sends and receives",
}

_CAUSE = {
    Kind.HOST: "network:slow_host",
    Kind.RANK: "network:slow_nic",
    Kind.RAIL: "network:rail_topology",
    Kind.GROUP: "network:slow_group",
    Kind.ISLANDS: "network:oversubscribed",
}

# A group of hosts is listed by name up to here; beyond it the first ones. Our own bound.
MAX_LISTED = 8


def check_slow_host(facts: BenchFacts) -> Sequence[Outcome]:
    """A finding for each host, NIC, rail or group that stayed slow with several partners."""
    view = view_of(facts, KINDS)
    if not isinstance(view, View):
        return [view]
    if (unseen := nothing_to_compare(facts, view)) is not None:
        return [unseen]
    found: list[Outcome] = [_found(facts, view, each) for each in view.suspects]
    two_alone = view.score.num_hosts == 2 and view.score.num_between == 2
    if two_alone and not found and not view.score.num_inside:
        reason = "of two hosts with one rank each neither can be compared with another host"
        return [not_seen(facts, reason, how="measure the two together with a third host")]
    return found + rest_of(facts, view, Passed(detail=f"{judged(view)}: no host or NIC stays behind"))


def _found(facts: BenchFacts, view: View, suspect: Suspect) -> Found:
    inside = suspect.candidate.is_inside
    on_gpu = any(place.device != "cpu" for place in facts.places if place.rank in suspect.ranks)
    return Found(
        key=f"{suspect.kind.value}{'-inside' if inside else ''}",
        title=_title(facts, view, suspect),
        severity=Severity.WARNING if suspect.kind is Kind.ISLANDS else severity_of(facts, suspect),
        confidence=confidence_of(facts, suspect),
        evidence=(
            speed_evidence(view, suspect, _who(facts, suspect), _others(suspect)),
            *confirmation_evidence(view, suspect),
            *(() if inside else score_evidence(view, suspect.hosts)),
            *_groups(suspect),
            *busy_evidence(facts, suspect.hosts),
        ),
        explanation=_explanation(suspect),
        actions=_actions(facts, suspect),
        scope=_scope(facts, suspect),
        cause_class=_cause_class(suspect, on_gpu=on_gpu),
        fault=(Fault.GPU if on_gpu else Fault.HOST) if inside else Fault.NETWORK,
    )


def _title(facts: BenchFacts, view: View, suspect: Suspect) -> str:
    part, verb = percent(suspect.ratio), _VERB[suspect.direction]
    host = short_host(suspect.hosts[0])
    match suspect.kind:
        case Kind.HOST:
            return f"{host} {verb} at {part} of the other hosts' speed"
        case Kind.RAIL:
            return f"rail {_rail(facts, suspect)} runs at {part} of the other rails' speed"
        case Kind.GROUP:
            plural = verb.replace("sends", "send").replace("receives", "receive")
            return f"{len(suspect.hosts)} of {view.score.num_hosts} hosts {plural} at {part} of the others' speed"
        case Kind.ISLANDS:
            groups = len(suspect.candidate.islands)
            return f"between {groups} groups of hosts data moves at {part} of the speed inside"
        case _:
            several = len(suspect.ranks) > 1
            who = f"rank{'s' if several else ''} {fold_ints(suspect.ranks)}"
            if several:
                verb = verb.replace("sends", "send").replace("receives", "receive")
            where = f"inside {host}" if suspect.candidate.is_inside else f"({host})"
            return f"{who} {where} {verb} at {part} of the others' speed"


def _who(facts: BenchFacts, suspect: Suspect) -> str:
    verb = _VERB[suspect.direction]
    match suspect.kind:
        case Kind.HOST:
            return f"{suspect.hosts[0]} {verb}"
        case Kind.RAIL:
            return f"local rank {_rail(facts, suspect)} of {len(suspect.hosts)} hosts"
        case Kind.GROUP:
            return f"{_list(suspect.hosts)}, the slowest"
        case Kind.ISLANDS:
            return "pairs of hosts of different groups"
        case _:
            return f"rank {fold_ints(suspect.ranks)} on {suspect.hosts[0]} {verb}"


def _others(suspect: Suspect) -> str:
    match suspect.kind:
        case Kind.RAIL:
            return "the other rails of the same hosts"
        case Kind.ISLANDS:
            return "pairs inside a group"
        case _:
            return (
                "pairs that do not touch it" if len(suspect.hosts) == 1 else "pairs that touch none of them"
            )


def _groups(suspect: Suspect) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(text=f"group {number}: {_list(group)}", source="point-to-point matrix")
        for number, group in enumerate(suspect.candidate.islands, 1)
    )


def _explanation(suspect: Suspect) -> str:
    match suspect.kind:
        case Kind.HOST:
            return (
                "Every collective that spans hosts runs at the pace of its slowest host. It is slow with every "
                "partner, and the partners are fast with one another: its NIC, cable, switch port, or its place in "
                "the network, not the fabric as a whole."
            )
        case Kind.RAIL:
            return (
                "The same local rank is slow on nearly all hosts while the other rails of the same hosts are not: "
                "what this rail shares, its switch or its wiring, not one host."
            )
        case Kind.GROUP:
            return (
                "A large part of the hosts is slow. One cause that they share (a leaf switch, a rack, an image, a "
                "setting) is likelier than as many single faults."
            )
        case Kind.ISLANDS:
            return (
                "Hosts fall into groups that are fast inside and slow between one another: thin or failed uplinks "
                "between their switches. A fabric may be built so; then place jobs inside one group."
            )
        case _ if suspect.candidate.is_inside:
            return (
                "It is slow with every rank of its host, and those are fast with one another: its GPU's links, the "
                "PCIe slot, or the cores that its process may use. GPUs need not all be joined alike; compare with "
                "`nvidia-smi topo -m`."
            )
        case _:
            return (
                "Other ranks of the same host are fast over the network: the port that this rank uses, its cable or "
                "switch port, or its GPU's path to it, not the host."
            )


def _actions(facts: BenchFacts, suspect: Suspect) -> tuple[Action, ...]:
    host = suspect.hosts[0]
    match suspect.kind:
        case Kind.HOST:
            return (look_at_ports(facts, host),)
        case Kind.RAIL:
            names = {
                nics[rail].name
                for each in suspect.hosts
                if (nics := nics_of(facts, each)) and (rail := _rail(facts, suspect)) < len(nics)
            }
            which = f" (perhaps {', '.join(sorted(names)[:2])} of each host)" if names else ""
            text = f"the leaf switch of rail {_rail(facts, suspect)}{which}: uplinks, errors, speed, routing"
            return (Action(team=Team.NETWORK, text=text, command="iblinkinfo --switches-only"),)
        case Kind.GROUP:
            text = f"what {_list(suspect.hosts)} share: leaf switch, rack, line card, firmware, settings"
            return (
                Action(team=Team.NETWORK, text=text, command="iblinkinfo --switches-only"),
                Action(
                    team=Team.PLATFORM,
                    text="compare the set-up of a slow host with that of a fast one",
                    command="distdoctor env -o host.json   # on both, then: distdoctor compare A.json B.json",
                ),
            )
        case Kind.ISLANDS:
            text = "the uplinks between the switches of these groups: how many are up, their speed, errors, routing"
            return (Action(team=Team.NETWORK, text=text, command="iblinkinfo --switches-only"),)
        case _ if suspect.candidate.is_inside:
            return (look_inside(facts, host, gpus_of(facts, suspect.ranks)),)
        case _:
            return (look_at_ports(facts, host, suspect.ranks),)


def _scope(facts: BenchFacts, suspect: Suspect) -> Scope:
    own = suspect.ranks if suspect.kind is Kind.RANK else None
    has_port = suspect.kind is Kind.HOST or (own is not None and not suspect.candidate.is_inside)
    return Scope(
        ranks=() if suspect.kind is Kind.ISLANDS else suspect.ranks,
        hosts=suspect.hosts,
        gpus=gpus_of(facts, own) if own is not None else (),
        links=link_names(facts, suspect.hosts[0], own) if has_port else (),
    )


def _cause_class(suspect: Suspect, *, on_gpu: bool) -> str:
    if not suspect.candidate.is_inside:
        return _CAUSE[suspect.kind]
    return "gpu:pair_link_fault" if on_gpu else "host:slow_rank"


def _rail(facts: BenchFacts, suspect: Suspect) -> int:
    place = facts.place_of(suspect.ranks[0])
    return place.local_rank if place is not None else 0


def _list(hosts: Sequence[str]) -> str:
    more = f" and {len(hosts) - MAX_LISTED} more" if len(hosts) > MAX_LISTED else ""
    return ", ".join(hosts[:MAX_LISTED]) + more


CHECK = BenchCheck(
    id="bench-slow-host", title="each host, NIC and rail beside the others", run=check_slow_host
)
