"""What the names in NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME admit, and what to name instead."""

from __future__ import annotations

import ipaddress
import shlex
from collections.abc import Sequence

from distdoctor.env.checks.base import Found, Outcome
from distdoctor.env.checks.network_view import described, join_names, links, spans_hosts
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.network import Interface
from distdoctor.env.predict.gloo import predict_gloo
from distdoctor.env.predict.interface_kind import InterfaceKind, interface_kind
from distdoctor.env.predict.nccl import ChosenInterface, Prediction, values_in_force
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

NCCL_GUIDE = "NCCL user guide, NCCL_SOCKET_IFNAME"

# Interfaces listed as evidence; a Kubernetes node has hundreds.
MAX_SHOWN = 12


def suggestion(interfaces: Sequence[Interface], variable: str = "NCCL_SOCKET_IFNAME") -> str:
    """A command that names the first interface that could carry a job, or unsets the variable."""
    fit = [each for each in interfaces if is_fit(each)]
    if not fit:
        return f"unset {variable}"
    exact = "=" if variable.startswith("NCCL_") else ""
    return f"export {variable}={shlex.quote(exact + fit[0].name)}"


def is_fit(interface: Interface) -> bool:
    """Could carry a job between hosts: a card (or the like), up, with an address that is not link-local."""
    return (
        interface_kind(interface) is InterfaceKind.ORDINARY
        and interface.is_up is not False
        and any(not is_link_local(address.address) for address in interface.addresses)
    )


def is_link_local(address: str) -> bool:
    """True for 169.254.0.0/16 and fe80::/10, and for text that is no address."""
    try:
        return ipaddress.ip_address(address).is_link_local
    except ValueError:
        return True


def prefix_takes_more(facts: EnvFacts, choice: Prediction[ChosenInterface]) -> list[Outcome]:
    """`eth1` also admits eth10: a warning when the name itself exists, otherwise the prefix is meant."""
    names = choice.filter
    if names is None or names.exact or names.excludes or spans_hosts(facts) is False:
        return []
    taken = [each.name for each in choice.chosen]
    listed = {entry.name for entry in names.entries}
    found: list[Outcome] = []
    for entry in names.entries:
        more = [name for name in taken if name not in listed and names.entry_for(name) == entry]
        if not more or entry.name not in taken:
            continue
        found.append(
            Found(
                key=f"prefix:{entry.name}",
                title=f"NCCL_SOCKET_IFNAME={entry.name} also takes {join_names(more, 3)}"[:80],
                severity=Severity.WARNING,
                confidence=Confidence.MEDIUM,
                evidence=(
                    Evidence(
                        text=f"`{entry.name}` is a prefix: it admits {entry.name} and {join_names(more)}",
                        value=", ".join([entry.name, *more]),
                        expected_source=NCCL_GUIDE,
                        source=origin_of(facts, "NCCL_SOCKET_IFNAME"),
                    ),
                ),
                explanation=(
                    "NCCL compares beginnings of names. The interfaces that are taken along may lead to another "
                    "network, and the order of the kernel decides which one carries the bootstrap."
                ),
                actions=(
                    Action(
                        team=Team.JOB_OWNER,
                        text="Ask for the whole name",
                        command=f"export NCCL_SOCKET_IFNAME={shlex.quote('=' + entry.name)}",
                    ),
                ),
                scope=links(facts, more),
                cause_class="config:socket_ifname",
                fault=Fault.CONFIG,
            )
        )
    return found


def gloo_names(facts: EnvFacts, interfaces: Sequence[Interface]) -> list[Outcome]:
    """A finding when GLOO_SOCKET_IFNAME names an interface that is not here or has no address."""
    if facts.variables is None or facts.network is None:
        return []
    values = values_in_force(facts.variables)
    choice = predict_gloo(interfaces, values, facts.network.hostname_resolves_to)
    if choice is None or not choice.missing:
        return []
    wanted = values["GLOO_SOCKET_IFNAME"]
    return [
        Found(
            key="gloo",
            title=f"GLOO_SOCKET_IFNAME names {join_names(choice.missing, 2)}: not usable here"[:80],
            severity=Severity.CRITICAL,
            confidence=Confidence.HIGH,
            evidence=(
                Evidence(
                    text=f"GLOO_SOCKET_IFNAME is `{wanted}`; names are compared whole, `^` and `=` mean nothing to Gloo",
                    value=wanted,
                    expected="names of interfaces that are here and have an address",
                    expected_source="gloo/transport/tcp/device.cc",
                    source=origin_of(facts, "GLOO_SOCKET_IFNAME"),
                ),
                *(Evidence(text=described(each), value=each.name) for each in interfaces[:MAX_SHOWN]),
            ),
            explanation=(
                "Process groups with the Gloo backend (CPU tensors, barriers, object collectives) stop with "
                "`Unable to find address for: …`."
            ),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Name an interface that exists, or unset the variable",
                    command=suggestion(interfaces, "GLOO_SOCKET_IFNAME"),
                ),
            ),
            scope=links(facts, choice.missing),
            cause_class="config:socket_ifname",
            fault=Fault.CONFIG,
        )
    ]


def origin_of(facts: EnvFacts, name: str) -> str:
    """Where a variable in force was set."""
    settings = facts.variables.settings if facts.variables else ()
    return next((setting.origin for setting in settings if setting.name == name), "environment")
