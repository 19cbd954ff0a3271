"""Does the NCCL at hand have a known fault that matters on this host, for this job?"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from distdoctor.env.catalog.known_bugs import KnownBug, nccl_known_bugs
from distdoctor.env.checks.base import Check, Found, NotApplicable, NotSeen, Outcome, Passed, missing
from distdoctor.env.checks.nccl_risk import is_off, is_on
from distdoctor.env.checks.nccl_view import NcclView, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.versions import below
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team

# CAP_SYS_NICE of capability.h: NUMA memory calls need it inside Docker's seccomp profile.
_CAP_SYS_NICE = 1 << 23

_Argument = str | int | bool
_Condition = Callable[[EnvFacts, NcclView, _Argument], bool | None]


def check_known_bugs(facts: EnvFacts) -> Sequence[Outcome]:
    """Version and conditions in range: a finding of its own. Version alone: one info with all of them."""
    view = view_of(facts)
    if view.is_rocm:
        return [NotApplicable(detail="RCCL: the table is about NVIDIA's NCCL")]
    if facts.torch is not None and facts.torch.is_cpu_build:
        return [NotApplicable(detail="this torch is built without CUDA, so it uses no NCCL")]
    if view.nccl is None:
        return [missing(facts, "nccl.loaded_version")]
    hits: list[KnownBug] = []
    leads: list[KnownBug] = []
    unseen: list[KnownBug] = []
    for bug in nccl_known_bugs():
        if not bug.covers(view.nccl):
            continue
        answers = [_CONDITIONS[name](facts, view, wanted) for name, wanted in bug.when.items()]
        if any(answer is False for answer in answers):
            continue
        if bug.certain and all(answers):
            hits.append(bug)
        elif not answers or any(answers):
            leads.append(bug)
        else:
            unseen.append(bug)
    outcomes: list[Outcome] = [_hit(facts, view, bug) for bug in hits]
    if leads:
        outcomes.append(_leads(view, leads))
    if unseen:
        outcomes.append(_unseen(facts, view, unseen))
    return outcomes or [Passed(detail=f"no fault of our list concerns NCCL {view.nccl_text} here")]


def _hit(facts: EnvFacts, view: NcclView, bug: KnownBug) -> Found:
    seen = view.nccl_text or ""
    conditions = ", ".join(_in_words(name, wanted) for name, wanted in bug.when.items())
    how = "loaded" if facts.nccl is not None and facts.nccl.loaded_version else "predicted, not observed"
    return Found(
        key=bug.id,
        title=f"NCCL {seen} has a known fault: {bug.symptom}"[:80],
        severity=bug.severity,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"NCCL {seen} ({how}); affected: {bug.versions}",
                value=seen,
                expected=bug.fix,
                expected_source=bug.source,
            ),
            Evidence(text=f"Conditions that hold here: {conditions}"),
        ),
        explanation=f"{bug.symptom}.",
        actions=(Action(team=Team.JOB_OWNER, text=bug.fix),),
        cause_class="env:nccl_bug",
        fault=Fault.SOFTWARE,
    )


def _in_words(name: str, wanted: _Argument) -> str:
    text = name.replace("_", " ").replace("env ", "variable ")
    if wanted is True:
        return text
    return f"not {text}" if wanted is False else f"{text} {wanted}"


def _leads(view: NcclView, bugs: Sequence[KnownBug]) -> Found:
    count = len(bugs)
    return Found(
        key=",".join(bug.id for bug in bugs),
        title=f"NCCL {view.nccl_text} has {count} known fault{'s' if count > 1 else ''} that may matter here"[
            :80
        ],
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=tuple(
            Evidence(
                text=f"{bug.symptom} ({bug.versions})",
                value=view.nccl_text,
                expected=bug.fix,
                expected_source=bug.source,
            )
            for bug in bugs
        ),
        explanation="The version is affected; whether the conditions hold was not seen, or one host cannot tell.",
        actions=(
            Action(
                team=Team.JOB_OWNER, text="Think of these when the symptom fits; a newer NCCL has the fixes"
            ),
        ),
        cause_class="env:nccl_bug",
        fault=Fault.SOFTWARE,
    )


def _unseen(facts: EnvFacts, view: NcclView, bugs: Sequence[KnownBug]) -> NotSeen:
    wanted = sorted({name.replace("_", " ") for bug in bugs for name in bug.when})
    cause = SkipCause.NOT_ASKED if facts.is_live else SkipCause.NOT_IN_EVIDENCE
    reason = (
        f"{len(bugs)} known faults of NCCL {view.nccl_text} depend on what was not seen: {', '.join(wanted)}"
    )
    return NotSeen(unread=Unread(cause=cause, reason=reason), what="conditions of known faults")


def _setting(view: NcclView, name: _Argument) -> str | None:
    setting = view.settings.get(str(name))
    return setting.value if setting is not None else None


def _with_variables(judge: Callable[[NcclView, _Argument], bool]) -> _Condition:
    """A condition about settings: unknown while no variables were read."""
    return lambda facts, view, wanted: None if facts.variables is None else judge(view, wanted)


def _link_layer(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    del view
    ports = facts.network.rdma_ports if facts.network is not None else None
    if ports is None:
        return None
    layers = [each.link_layer for each in ports if each.state is None or "ACTIVE" in each.state.upper()]
    return True if wanted in layers else None if None in layers else False


def _one_gpu_per_nic(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    ports = facts.network.rdma_ports if facts.network is not None else None
    if ports is None or view.num_gpus is None:
        return None
    active = [each for each in ports if each.state and "ACTIVE" in each.state.upper()]
    return (view.num_gpus == 1 and len(active) == 1) == wanted


def _capability(view: NcclView, bound: _Argument, *, at_least_it: bool) -> bool | None:
    if view.capability is None:
        return None
    major, _, minor = str(bound).partition(".")
    return (view.capability >= (int(major), int(minor))) == at_least_it


def _number(value: int | None, judge: Callable[[int], bool]) -> bool | None:
    return None if value is None else judge(value)


def _container(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    del view
    kind = facts.container.kind if facts.container is not None else None
    return None if kind is None else (kind != "none") == wanted


def _no_sys_nice(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    del view
    mask = facts.process.effective_capabilities if facts.process is not None else None
    return None if mask is None else (mask & _CAP_SYS_NICE == 0) == wanted


def _numa_without_cpus(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    del view
    nodes = facts.host.numa_nodes if facts.host is not None else None
    return None if nodes is None else any(not each.cpus for each in nodes) == wanted


def _model(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    if facts.gpus is None or facts.gpus.devices is None or (facts.gpus.devices and not view.models):
        return None
    pattern = re.compile(rf"(?<![\w-])(?:{wanted})(?!\w)")
    return any(pattern.search(name) for name in view.models)


def _driver_before(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    del view
    return below(facts.gpus.driver_version, str(wanted)) if facts.gpus is not None else None


def _fabric_unwell(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    """The fabric manager failed, or a GPU's fabric did not complete with success (NVML)."""
    del view
    if facts.gpus is None:
        return None
    states = [each.fabric_state for each in facts.gpus.devices or () if each.fabric_state is not None]
    bad = facts.gpus.fabric_manager == "failed" or any(state in (1, 2) for state in states)
    if not bad and not states and facts.gpus.fabric_manager is None:
        return None
    return bad == wanted


def _unopenable_nic(facts: EnvFacts, view: NcclView, wanted: _Argument) -> bool | None:
    del view
    ports = facts.network.rdma_ports if facts.network is not None else None
    if ports is None or any(each.openable is None for each in ports):
        return None
    return any(not each.openable for each in ports) == wanted


_CONDITIONS: Mapping[str, _Condition] = {
    "env_on": _with_variables(lambda view, name: is_on(_setting(view, name) or "")),
    "env_off": _with_variables(lambda view, name: is_off(_setting(view, name) or "")),
    "env_not_off": _with_variables(lambda view, name: not is_off(_setting(view, name) or "")),
    "env_set": _with_variables(lambda view, name: bool(_setting(view, name))),
    "several_hosts": lambda _, view, wanted: (
        None if view.several_hosts is None else view.several_hosts == wanted
    ),
    "ranks_from": lambda _, view, bound: _number(view.num_ranks, lambda ranks: ranks >= int(bound)),
    "ranks_equal": lambda _, view, wanted: _number(view.num_ranks, lambda ranks: ranks == int(wanted)),
    "gpus_from": lambda _, view, bound: _number(view.num_gpus, lambda gpus: gpus >= int(bound)),
    "capability_from": lambda _, view, bound: _capability(view, bound, at_least_it=True),
    "capability_below": lambda _, view, bound: _capability(view, bound, at_least_it=False),
    "efa": lambda _, view, wanted: None if view.efa is None else view.efa == wanted,
    "link_layer": _link_layer,
    "one_gpu_per_nic": _one_gpu_per_nic,
    "container": _container,
    "no_sys_nice": _no_sys_nice,
    "numa_node_without_cpus": _numa_without_cpus,
    "model": _model,
    "driver_before": _driver_before,
    "fabric_unwell": _fabric_unwell,
    "unopenable_nic": _unopenable_nic,
    "architecture": lambda facts, _, wanted: (
        None if facts.host is None or facts.host.architecture is None else facts.host.architecture == wanted
    ),
}

CHECK = Check(id="nccl-known-bug", title="known faults of this NCCL", run=check_known_bugs)
