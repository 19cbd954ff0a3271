"""From the members' facts to the report of `env` and `checkup`. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TypeVar

from distdoctor.env.checks.base import Check
from distdoctor.env.expect import NOTHING_EXPECTED, Expected
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Section
from distdoctor.env.flatten import fold_facts
from distdoctor.env.gpu_nic import gpu_nic_table
from distdoctor.env.gpu_table import make_gpu_table
from distdoctor.env.job import check_job
from distdoctor.env.members import Member
from distdoctor.report.assemble import build_report, fold_findings
from distdoctor.report.model import (
    CheckResult,
    CheckState,
    Finding,
    InputFile,
    MissingEvidence,
    Report,
    Subject,
    Table,
)
from distdoctor.report.site import Site, apply_site

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Absent:
    """Ranks and hosts that should have reported and did not, with what is known of each."""

    ranks: tuple[int, ...] = ()
    hosts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    evidence: tuple[MissingEvidence, ...] = ()


NOBODY_ABSENT = Absent()


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """How the report was asked for."""

    command: str
    argv: tuple[str, ...]
    checks: tuple[Check, ...]
    started: datetime
    site: Site = field(default_factory=Site)
    ignore: tuple[str, ...] = ()
    only: tuple[str, ...] = ()


def env_report(
    request: Request,
    members: Sequence[Member],
    *,
    absent: Absent = NOBODY_ABSENT,
    extra: Expected = NOTHING_EXPECTED,
    inputs: Sequence[InputFile] = (),
    timings: dict[str, float] | None = None,
) -> Report:
    """The report over all members. Inputs that could not be read keep the verdict from being ok."""
    checks = tuple(check for check in request.checks if not request.only or check.id in request.only)
    outcome = check_job(members, checks)
    findings = fold_findings((*absent.findings, *extra.findings, *outcome.findings))
    if request.only:
        findings = tuple(each for each in findings if each.id in request.only or each in absent.findings)
    subject = make_subject(members, absent)
    return build_report(
        command=request.command,
        argv=request.argv,
        about=describe(members, subject),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=(*extra.checks, *outcome.checks),
        skipped=(*extra.skipped, *outcome.skipped),
        subject=subject,
        facts=fold_facts([(member.host or None, member.rank, member.facts) for member in members]),
        tables=(*outcome.tables, *hardware_tables(members)),
        inputs=inputs,
        missing_evidence=absent.evidence,
        timings=timings,
        started=request.started,
        answered=bool(members)
        and all(each.read for each in inputs)
        and _anything_was_judged((*extra.checks, *outcome.checks)),
    )


def _anything_was_judged(checks: Sequence[CheckResult]) -> bool:
    """False when every check that could matter here saw nothing: that is no clean bill."""
    states = {each.state for each in checks}
    return CheckState.SKIPPED not in states or bool(states & {CheckState.FOUND, CheckState.PASSED})


def make_subject(members: Sequence[Member], absent: Absent) -> Subject:
    """What the report is about, from the first member that knows each thing."""
    all_facts = [member.facts for member in members]
    devices = [device for facts in all_facts if facts.gpus for device in facts.gpus.devices or ()]
    ports = [port for facts in all_facts if facts.network for port in facts.network.rdma_ports or ()]
    return Subject(
        hosts=tuple(dict.fromkeys(member.host for member in members if member.host)),
        world_size=_first(all_facts, "scheduler", "world_size"),
        scheduler=_known(_first(all_facts, "scheduler", "scheduler")),
        job_id=_first(all_facts, "scheduler", "job_id"),
        job_name=_first(all_facts, "scheduler", "job_name"),
        image=_first(all_facts, "container", "image"),
        restart_count=_first(all_facts, "scheduler", "restart_count"),
        gpu_models=tuple(dict.fromkeys(device.name for device in devices if device.name)),
        num_gpus=len(devices)
        if any(facts.gpus and facts.gpus.devices is not None for facts in all_facts)
        else None,
        nic_models=tuple(dict.fromkeys(port.board for port in ports if port.board)),
        torch=_first(all_facts, "torch_probe", "torch_version") or _first(all_facts, "torch", "version"),
        nccl=next((facts.nccl.version for facts in all_facts if facts.nccl and facts.nccl.version), None),
        cuda=_first(all_facts, "torch", "cuda_build") or _first(all_facts, "torch_probe", "cuda_build"),
        driver=_first(all_facts, "gpus", "driver_version")
        or _first(all_facts, "gpus", "kernel_module_version"),
        missing_ranks=absent.ranks,
        missing_hosts=absent.hosts,
    )


def describe(members: Sequence[Member], subject: Subject) -> str:
    """The subject in words: "host-a", "8 ranks on 2 hosts"."""
    num_ranks = sum(member.rank is not None for member in members)
    hosts = len(subject.hosts)
    if num_ranks > 1 or absent_any(subject):
        of_all = f" of {subject.world_size}" if absent_any(subject) and subject.world_size else ""
        return f"{num_ranks}{of_all} ranks on {hosts} host{'s' if hosts != 1 else ''}"
    if hosts == 1:
        return subject.hosts[0]
    return f"{hosts} hosts" if hosts else "the evidence given"


def absent_any(subject: Subject) -> bool:
    """True when somebody who should have reported did not."""
    return bool(subject.missing_ranks or subject.missing_hosts)


def hardware_tables(members: Sequence[Member]) -> tuple[Table, ...]:
    """One row a GPU, as people expect from nvidia-smi; on a single host also each GPU's nearest RDMA port."""
    hosts: dict[str, EnvFacts] = {}
    for member in members:
        if member.facts.gpus is not None and member.facts.gpus.devices:
            hosts.setdefault(member.host, member.facts)
    tables = make_gpu_table(hosts)
    if len(hosts) == 1:
        (facts,) = hosts.values()
        ports = facts.network.rdma_ports if facts.network is not None else None
        nearest = gpu_nic_table(facts, ports) if ports else None
        return (*tables, nearest) if nearest is not None else tables
    return tables


def _known(scheduler: str | None) -> str | None:
    return None if scheduler == "none" else scheduler


def _first(all_facts: Sequence[EnvFacts], section_name: str, field_name: str) -> T | None:
    for facts in all_facts:
        section = getattr(facts, section_name)
        if isinstance(section, Section):
            value: T | None = getattr(section, field_name)
            if value is not None:
                return value
    return None
