"""Which interface would NCCL and Gloo take, and can it carry a job?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed
from distdoctor.env.checks.network_interface_filters import (
    MAX_SHOWN,
    NCCL_GUIDE,
    gloo_names,
    is_fit,
    is_link_local,
    origin_of,
    prefix_takes_more,
    suggestion,
)
from distdoctor.env.checks.network_view import (
    described,
    interface_choice,
    join_names,
    links,
    rdma_carries_job,
    spans_hosts,
    uses_nccl,
)
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import Interface
from distdoctor.env.predict.interface_kind import InterfaceKind, interface_kind
from distdoctor.env.predict.nccl import ChosenInterface, Prediction
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# These reach another host only where somebody arranged it, or never.
_UNFIT = (InterfaceKind.LOOPBACK, InterfaceKind.CONTAINER, InterfaceKind.DUMMY)


def check_interface_choice(facts: EnvFacts) -> Sequence[Outcome]:
    """A filter that matches nothing is critical; loopback or a bridge for a job over several hosts too."""
    choice = interface_choice(facts)
    if isinstance(choice, NotSeen):
        return [choice]
    interfaces = facts.network.interfaces if facts.network else None
    outcomes: list[Outcome] = gloo_names(facts, interfaces or ())
    if not choice.chosen:
        return [*outcomes, _nothing_chosen(facts, choice, interfaces or ())]
    found = _unfit_bootstrap(facts, choice, interfaces or ()) or _virtual_among_several(facts, choice)
    outcomes += [found] if found else []
    outcomes += prefix_takes_more(facts, choice)
    first = choice.chosen[0]
    return outcomes or [Passed(detail=f"NCCL would use {first} ({choice.why})")]


def _nothing_chosen(
    facts: EnvFacts, choice: Prediction[ChosenInterface], interfaces: Sequence[Interface]
) -> Found:
    text = choice.filter.text if choice.filter else None
    named = [each for each in interfaces if choice.filter and choice.filter.admits(each.name)]
    if text is None:
        title = "no network interface with an address: NCCL cannot start"
    elif named:
        title = f"NCCL_SOCKET_IFNAME={text} matches only interfaces that are unusable"
    else:
        title = f"NCCL_SOCKET_IFNAME={text} matches no interface here"
    shown = [*named, *(each for each in interfaces if each not in named)][:MAX_SHOWN]
    evidence = [
        Evidence(
            text=f"{described(each)}: {choice.rejected.get(each.name, 'not admitted')}",
            value=each.name,
            source="/sys/class/net",
        )
        for each in shown
    ]
    if text is not None:
        evidence.insert(
            0,
            Evidence(
                text=f"NCCL_SOCKET_IFNAME is `{text}`{_spelling(text)}",
                value=text,
                expected="at least one interface that is up and has an address",
                expected_source=NCCL_GUIDE,
                source=origin_of(facts, "NCCL_SOCKET_IFNAME"),
            ),
        )
    return Found(
        key="nothing",
        title=title[:80],
        severity=Severity.WARNING if uses_nccl(facts) is False else Severity.CRITICAL,
        evidence=tuple(evidence),
        explanation=(
            "NCCL takes the interfaces that this variable admits or stops: `Bootstrap : no socket interface "
            "found`, also on a single host. Names that exist on one kind of machine are often missing on another."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Name an interface that exists, or unset the variable",
                command=suggestion(interfaces),
            ),
        ),
        scope=links(facts, ()),
        cause_class="config:socket_ifname",
        fault=Fault.CONFIG,
    )


def _spelling(text: str) -> str:
    body = text.lstrip("^=")
    if " " in text:
        return " (a space belongs to the name that follows it)"
    if "=" in body or "^" in body:
        return " (`^` and `=` count only at the very beginning)"
    return ""


def _unfit_bootstrap(
    facts: EnvFacts, choice: Prediction[ChosenInterface], interfaces: Sequence[Interface]
) -> Found | None:
    """The first interface carries the bootstrap: it must reach the other hosts."""
    several = spans_hosts(facts)
    first = choice.chosen[0]
    kind = interface_kind(first.interface)
    better = [each for each in interfaces if is_fit(each) and each.name != first.name]
    link_local = is_link_local(first.address.address)
    if several is False or (kind is InterfaceKind.ORDINARY and not link_local):
        return None
    if kind not in _UNFIT and not better:
        return None  # a VPN, or an address of the link only, with nothing else there: may well be meant
    sure = kind in _UNFIT
    if several is None and not (choice.variable or better):
        return None  # a laptop or a container without a network, and no sign of other hosts
    if several is None:
        severity = Severity.INFO if choice.variable is None else Severity.WARNING
    else:
        severity = Severity.CRITICAL if sure else Severity.WARNING
    what = "an address of the link only" if kind is InterfaceKind.ORDINARY else kind.value
    return Found(
        key=f"unfit:{first.name}",
        title=f"NCCL would use {first.name} ({what}) between hosts"[:80],
        severity=severity,
        confidence=Confidence.HIGH if sure and several else Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"first choice is {first}, by the rule: {choice.why}",
                value=first.name,
                expected="an interface that the other hosts can reach",
                expected_source=NCCL_GUIDE,
                source="/sys/class/net, getifaddrs()",
            ),
            *(
                Evidence(text=f"also there: {described(each)}", value=each.name)
                for each in better[:MAX_SHOWN]
            ),
        ),
        explanation=(
            f"Every rank tells the others an address of {first.name}. An address of a loopback, bridge or "
            "link-local network means another machine there, or none, so ranks on other hosts get `connection "
            "refused` or wait until the timeout."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Name the interface that joins the hosts",
                command=suggestion(interfaces) if better else None,
            ),
        ),
        scope=links(facts, (first.name,)),
        cause_class="config:socket_ifname",
        fault=Fault.CONFIG,
    )


def _virtual_among_several(facts: EnvFacts, choice: Prediction[ChosenInterface]) -> Found | None:
    """Without RDMA the socket transport spreads data over all chosen interfaces, bridges included."""
    if spans_hosts(facts) is not True or rdma_carries_job(facts) is not False or len(choice.chosen) < 2:
        return None
    odd = [each for each in choice.chosen if interface_kind(each.interface) is not InterfaceKind.ORDINARY]
    if not odd:
        return None
    names = [each.name for each in odd]
    return Found(
        key="mixed",
        title=f"NCCL would send data over {join_names(names, 2)} too"[:80],
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=tuple(
            Evidence(text=f"{each} is {interface_kind(each.interface).value}", value=each.name)
            for each in odd
        ),
        explanation=(
            "No RDMA port is used, so NCCL's socket transport takes all interfaces of the list. Through a "
            "bridge or a VPN the other hosts are slow to reach or not at all."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Name the one interface that joins the hosts",
                command=suggestion([each.interface for each in choice.chosen]),
            ),
        ),
        scope=links(facts, names),
        cause_class="config:socket_ifname",
        fault=Fault.CONFIG,
    )


CHECK = Check(
    id="network-interface-choice",
    title="interface that NCCL and Gloo would use",
    run=check_interface_choice,
    preflight=True,
)
