"""Would NCCL find the network plugin that this host needs or that the settings name?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.checks.nccl_view import NcclView, setting_evidence, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclPlugin
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

_EFA_SOURCE = "AWS documentation: EFA with NCCL needs aws-ofi-nccl"
_LOAD_SOURCE = "NVIDIA/nccl, src/plugin/plugin_open.cc"


def check_plugin(facts: EnvFacts) -> Sequence[Outcome]:
    """EFA without a plugin is critical on several hosts; a plugin that is named and not found is a warning."""
    view = view_of(facts)
    plugins = facts.nccl.plugins if facts.nccl is not None else ()
    setting = view.settings.get("NCCL_NET_PLUGIN")
    if view.efa and setting is not None and setting.value.strip().lower() == "none":
        return [_switched_off(view)]
    if facts.nccl is None or not plugins:
        if view.efa is False and setting is None:
            return [NotApplicable(detail="no EFA device, and no plugin is named")]
        return [missing(facts, "nccl.plugins")]
    outcomes: list[Outcome] = []
    network = [each for each in plugins if _is_network(each)]
    if view.efa and not any(each.path for each in network):
        outcomes.append(_efa_without(view, network))
    for plugin in plugins:
        if (
            plugin.path is None
            and plugin.wanted_by != "default name"
            and not (view.efa and _is_network(plugin))
        ):
            outcomes.append(_not_found(view, plugin))
    if outcomes:
        return outcomes
    if view.efa is None:
        return [missing(facts, "network.rdma_ports", what="whether this host needs a plugin (EFA)")]
    found = [f"{each.name} at {each.path}" for each in plugins if each.path]
    if found:
        return [Passed(detail="; ".join(found))]
    return [NotApplicable(detail="no EFA device, and no plugin is named")]


def _is_network(plugin: NcclPlugin) -> bool:
    return plugin.wanted_by == "NCCL_NET_PLUGIN" or plugin.name.startswith("libnccl-net")


def _switched_off(view: NcclView) -> Found:
    setting = view.settings["NCCL_NET_PLUGIN"]
    return Found(
        key="switched-off",
        title="NCCL_NET_PLUGIN=none: NCCL cannot use this host's EFA network",
        severity=Severity.CRITICAL if view.several_hosts else Severity.WARNING,
        evidence=(setting_evidence(setting, expected="the plugin aws-ofi-nccl", source=_EFA_SOURCE),),
        explanation="Without the plugin NCCL falls back to TCP sockets, without an error.",
        actions=(Action(team=Team.JOB_OWNER, text="Remove the setting", command="unset NCCL_NET_PLUGIN"),),
        cause_class="network:plugin_missing",
        fault=Fault.CONFIG,
    )


def _efa_without(view: NcclView, network: Sequence[NcclPlugin]) -> Found:
    tried = ", ".join(each.name for each in network) or "libnccl-net.so"
    return Found(
        key="efa",
        title="EFA network here, but NCCL would not find its plugin",
        severity=Severity.CRITICAL if view.several_hosts else Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"None of the loader's places has {tried}",
                expected="libnccl-net.so or libnccl-net-ofi.so of aws-ofi-nccl",
                expected_source=_EFA_SOURCE,
                source="emulation of ld.so with this process' LD_LIBRARY_PATH",
            ),
        ),
        explanation="NCCL then falls back to TCP sockets, without an error: many times slower between hosts.",
        actions=(
            Action(
                team=Team.PLATFORM,
                text="Install aws-ofi-nccl in the image and put its folder into LD_LIBRARY_PATH",
                command="export LD_LIBRARY_PATH=/opt/amazon/ofi-nccl/lib:/opt/amazon/efa/lib:$LD_LIBRARY_PATH",
            ),
        ),
        cause_class="network:plugin_missing",
        fault=Fault.SOFTWARE,
    )


def _not_found(view: NcclView, plugin: NcclPlugin) -> Found:
    setting = view.settings.get(plugin.wanted_by)
    is_network = _is_network(plugin)
    return Found(
        key=plugin.wanted_by,
        title=f"The plugin that {plugin.wanted_by} names is not found: {plugin.name[:24]}"[:80],
        severity=Severity.WARNING if is_network else Severity.INFO,
        confidence=Confidence.MEDIUM,
        evidence=(
            setting_evidence(setting, expected="a file that the loader finds", source=_LOAD_SOURCE)
            if setting is not None
            else Evidence(
                text=f"{plugin.name} is in none of the loader's places", expected_source=_LOAD_SOURCE
            ),
        ),
        explanation=(
            "NCCL goes on without it and without an error"
            + (": on its own InfiniBand or socket code." if is_network else ".")
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Put the plugin's folder into LD_LIBRARY_PATH, give its full path, or remove the setting",
                command="NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET …   # prints what it tried to open",
            ),
        ),
        cause_class="network:plugin_missing",
        fault=Fault.CONFIG,
    )


CHECK = Check(id="nccl-plugin-missing", title="NCCL's network plugin", run=check_plugin, preflight=True)
