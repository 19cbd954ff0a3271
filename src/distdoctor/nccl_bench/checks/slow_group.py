"""Is one host slow inside itself, one rail slower than the others, or are rails fine alone and slow together?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.slow_groups import (
    MIN_GROUPS,
    SLOW_PART,
    SlowGroup,
    SlowTogether,
    compare_groups,
)
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.checks.matrix_view import busy_evidence, percent
from distdoctor.nccl_bench.checks.ports import busier, gpus_of, look_inside, nics_of
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.rows import GroupKind, Row
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import short_host
from distdoctor.units import fold_ints, format_bytes

# Half of what the other groups reach: half of every collective's time is lost to it. Our own threshold.
CRITICAL_PART = 0.5

# Groups that together reach less than this part of what each reaches alone share something narrow. Our own threshold.
WARN_TOGETHER = 0.5

# Groups that could not be compared, by name. Our own bound.
MAX_LISTED = 4

THRESHOLD = f"our own threshold: {SLOW_PART} of the other groups' median, with repeats that do not overlap"


def check_slow_group(facts: BenchFacts) -> Sequence[Outcome]:
    """A finding for each group that stays behind its like, and for each set that is slow together only."""
    if facts.num_ranks == 1:
        return [NotApplicable(detail="one rank forms no groups")]
    told = compare_groups(facts)
    if not told.compared and not told.lone:
        hosts = {place.host for place in facts.places}
        if facts.is_live and len(hosts) == 1:
            return [NotApplicable(detail="one host: there is no other group to compare with")]
        if facts.is_live and hosts and len(hosts) == len(facts.places):
            return [NotApplicable(detail="one rank a host: hosts have no inside, and there is one rail")]
        return [not_seen(facts, "groups (hosts, rails, a mesh) were not measured by themselves")]
    if facts.shares_gpus:
        return [not_seen(facts, "GPUs are shared: speeds of groups say nothing of the hardware")]
    outcomes: list[Outcome] = [_slow(facts, each) for each in told.slow]
    # Over Gloo all groups of a host share its processors, so that together is slower by nature.
    if facts.backend != "gloo":
        outcomes += [_together(facts, each) for each in told.together if each.ratio < SLOW_PART]
    if told.compared and not outcomes:
        sets = ", ".join(f"{number} of {label}" for label, number in told.compared)
        outcomes.append(Passed(detail=f"groups are like one another: {sets}"))
    for label in told.lone:
        reason = f"{label}: too few groups of one kind with three repeats that agree"
        outcomes.append(
            not_seen(facts, reason, how="--repeats 3", what=f"groups of {label} beside one another")
        )
    if told.unsteady:
        more = f" and {len(told.unsteady) - MAX_LISTED} more" if len(told.unsteady) > MAX_LISTED else ""
        what = f"{', '.join(told.unsteady[:MAX_LISTED])}{more} beside the others"
        outcomes.append(
            not_seen(facts, "their repeats differ too much to be compared", how="--repeats 5", what=what)
        )
    return outcomes


def _slow(facts: BenchFacts, slow: SlowGroup) -> Found:
    group, row = slow.group, slow.row
    hosts = tuple(dict.fromkeys(host for rank in group.ranks if (host := facts.host_of(rank)) is not None))
    named = slow.num_groups >= MIN_GROUPS
    sure = named and not (group.kind is GroupKind.HOST and busier(facts, hosts))
    inside = group.kind is GroupKind.HOST
    on_gpu = any(place.device != "cpu" for place in facts.places if place.rank in group.ranks)
    return Found(
        key=group.kind.value,
        title=_title(slow, named=named),
        severity=Severity.CRITICAL if named and slow.ratio < CRITICAL_PART else Severity.WARNING,
        confidence=Confidence.HIGH if sure else Confidence.MEDIUM,
        evidence=(
            _evidence(slow),
            Evidence(
                text=(
                    f"repeats {_times(row.repeats_us)}; behind in {slow.num_rows} of {slow.num_compared} "
                    f"row{'s' if slow.num_compared > 1 else ''}, {slow.num_groups} groups compared"
                ),
                source=_what(row),
            ),
            *(busy_evidence(facts, hosts) if inside else ()),
        ),
        explanation=_explanation(slow, named=named),
        actions=_actions(facts, slow, hosts),
        scope=Scope(
            ranks=group.ranks,
            hosts=hosts if inside else (),
            gpus=gpus_of(facts, group.ranks) if inside else (),
        ),
        cause_class=("gpu:nvlink" if on_gpu else "host:slow_inside")
        if inside
        else ("network:rail_topology" if group.kind is GroupKind.RAIL else "network:slow_group"),
        fault=(Fault.GPU if on_gpu else Fault.HOST) if inside else Fault.NETWORK,
    )


def _title(slow: SlowGroup, *, named: bool) -> str:
    part = percent(slow.ratio)
    who = _name(slow)
    if not named:
        return f"the two groups of {slow.group.set_label} differ: {who} at {part} of the other"
    match slow.group.kind:
        case GroupKind.HOST:
            return f"{who} is slow inside itself: {part} of the other hosts"
        case GroupKind.RAIL:
            return f"{who} is slow: {part} of the other rails"
        case _:
            return f"{who} is slow: {part} of the other groups of its dimension"


def _name(slow: SlowGroup) -> str:
    return (
        short_host(slow.group.label.removeprefix("host "))
        if slow.group.kind is GroupKind.HOST
        else short_host(slow.group.label)
    )


def _evidence(slow: SlowGroup) -> Evidence:
    row = slow.row
    at_once = "all groups at once" if slow.concurrent else "alone"
    if row.busbw_gbps is not None:
        others = row.busbw_gbps / slow.ratio
        return Evidence(
            text=f"{row.group.label}: {row.busbw_gbps:.3g} GB/s bus bandwidth, the others {others:.3g} GB/s ({at_once})",
            value=round(row.busbw_gbps, 4),
            unit="GB/s",
            expected=f"at least {others * SLOW_PART:.3g} GB/s",
            expected_source=THRESHOLD,
            source=_what(row),
        )
    return Evidence(
        text=f"{row.group.label}: {row.time_us / 1e3:.3g} ms, the others {slow.others_us / 1e3:.3g} ms ({at_once})",
        value=round(row.time_us, 1),
        unit="us",
        expected=f"at most {slow.others_us / SLOW_PART:.0f} us",
        expected_source=THRESHOLD,
        source=_what(row),
    )


def _explanation(slow: SlowGroup, *, named: bool) -> str:
    if not named:
        return (
            "Two groups cannot tell which of them is the usual one. Measure with a third, or compare with what the "
            "hardware should reach. A job that spans both runs at the pace of the slower."
        )
    match slow.group.kind:
        case GroupKind.HOST:
            return (
                "The network has no part in this: the ranks of one host exchange data among themselves more slowly "
                "than those of the other hosts. NVLink or PCIe that trained down, a GPU at lower clocks, the cores "
                "or memory that the ranks use."
            )
        case GroupKind.RAIL:
            return (
                "The ranks with this local rank go through one rail of the network. It is slower than the other "
                "rails of the same hosts: its leaf switch, a port on it, or a NIC of one host (the matrix of pairs "
                "tells which). Every collective that uses all rails waits for it."
            )
        case _:
            return "Groups along one dimension of a mesh are alike by intent; this one holds its job up."


def _actions(facts: BenchFacts, slow: SlowGroup, hosts: Sequence[str]) -> tuple[Action, ...]:
    match slow.group.kind:
        case GroupKind.HOST if hosts:
            return (look_inside(facts, hosts[0]),)
        case GroupKind.RAIL:
            rail = slow.group.label.removeprefix("rail ")
            names = sorted(
                {
                    nics[int(rail)].name
                    for host in hosts
                    if rail.isdecimal() and len(nics := nics_of(facts, host)) > int(rail)
                }
            )
            which = f" (perhaps {', '.join(names[:2])} of each host)" if names else ""
            text = (
                f"{slow.group.label}{which}: its leaf switch, ports and cables; errors and speed of each port"
            )
            return (Action(team=Team.NETWORK, text=text, command="iblinkinfo --switches-only"),)
        case _:
            return (
                Action(
                    team=Team.JOB_OWNER,
                    text=f"measure pairs among ranks {fold_ints(slow.group.ranks)}",
                    command="distdoctor nccl-bench --matrix all",
                ),
            )


def _together(facts: BenchFacts, shared: SlowTogether) -> Found:
    del facts
    row = shared.row
    return Found(
        key="together",
        title=f"{shared.set_label} at once reach {percent(shared.ratio)} of what each reaches alone",
        severity=Severity.WARNING if shared.ratio < WARN_TOGETHER else Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=(
                    f"median over {shared.num_groups} groups: {shared.alone_us / 1e3:.3g} ms alone, "
                    f"{shared.together_us / 1e3:.3g} ms at once"
                ),
                value=round(shared.ratio, 3),
                expected=f"at least {SLOW_PART}",
                expected_source="our own threshold",
                source=_what(row),
            ),
        ),
        explanation=(
            "Each group is fine by itself; at once they share something narrow: one PCIe switch or one NIC for "
            "several GPUs, or uplinks between switches that are thinner than the ports below. A job uses all groups "
            "at once. Where the hosts are built so, this is what they can do."
        ),
        actions=(
            Action(
                team=Team.NETWORK,
                text="which NIC and PCIe switch each GPU uses, and how many uplinks the leaf switches have",
                command="nvidia-smi topo -m; lspci -tv",
            ),
        ),
        cause_class="network:shared_bottleneck",
        fault=Fault.NETWORK,
    )


def _what(row: Row) -> str:
    return f"{row.collective}, {format_bytes(row.size_bytes)}"


def _times(repeats_us: Sequence[float]) -> str:
    shown = ", ".join(f"{each / 1e3:.3g}" for each in repeats_us[:6])
    return f"{shown}{' …' if len(repeats_us) > 6 else ''} ms"


CHECK = BenchCheck(
    id="bench-slow-group", title="hosts inside themselves, rails and mesh groups", run=check_slow_group
)
