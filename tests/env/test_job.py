"""Ranks together: the odd one is named, host facts are lent, common faults name no rank."""

from __future__ import annotations

import dataclasses

from distdoctor.env.checks.base import Check, Found, NotSeen, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, NvmlState
from distdoctor.env.facts.host import HostFacts
from distdoctor.env.facts.process import ProcessFacts
from distdoctor.env.facts.torch import ProbeState, PythonFacts, TorchFacts, TorchProbe
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.env.job import check_job
from distdoctor.env.members import Member, share_host_sections
from distdoctor.report.model import CheckState, Confidence, Finding, Severity


def member(rank: int, host: str = "host-a", algo: str | None = "Ring", **sections: object) -> Member:
    environment = {} if algo is None else {"NCCL_ALGO": algo}
    facts = EnvFacts(
        host_name=host,
        python=PythonFacts(executable="/usr/bin/python3", version="3.11.7"),
        torch=TorchFacts(found=True, path="/site/torch", version="2.9.1"),
        variables=VariableFacts(environment=environment),
    )
    return Member(rank=rank, host=host, facts=dataclasses.replace(facts, **sections))  # type: ignore[arg-type]


def found(findings: tuple[Finding, ...], identity: str) -> list[Finding]:
    return [each for each in findings if each.id == identity]


def test_a_rank_with_another_variable_is_named() -> None:
    members = [member(rank, algo="Tree" if rank == 2 else "Ring") for rank in range(4)]
    (finding,) = found(check_job(members, []).findings, "job-variables-differ")
    assert finding.scope.ranks == (2,)
    assert finding.scope.hosts == ("host-a",)
    assert finding.severity is Severity.CRITICAL
    assert "rank 2" in finding.title
    assert "NCCL_ALGO" in finding.title
    assert [each.text for each in finding.evidence] == ["ranks 0-1,3: Ring", "rank 2: Tree"]


def test_a_rank_where_it_is_not_set_is_named() -> None:
    members = [member(rank, algo=None if rank == 1 else "Ring") for rank in range(3)]
    (finding,) = found(check_job(members, []).findings, "job-variables-differ")
    assert finding.scope.ranks == (1,)
    assert finding.evidence[1].text == "rank 1: not set"


def test_two_ranks_that_differ_accuse_nobody_with_high_confidence() -> None:
    (finding,) = found(
        check_job([member(0, algo="Ring"), member(1, algo="Tree")], []).findings, "job-variables-differ"
    )
    assert finding.confidence is Confidence.MEDIUM
    assert "no majority" in finding.title


def test_equal_ranks_are_passed() -> None:
    outcome = check_job([member(rank) for rank in range(4)], [])
    assert outcome.findings == ()
    assert {each.state for each in outcome.checks} == {CheckState.PASSED}


def test_a_host_with_fewer_gpus_is_named_as_a_host() -> None:
    def gpus(count: int) -> GpuFacts:
        return GpuFacts(
            nvml_state=NvmlState.OK, devices=tuple(GpuDevice(index=each) for each in range(count))
        )

    hosts = {"host-a": 8, "host-b": 8, "host-c": 7}
    members = [
        member(rank, host=host, gpus=gpus(count), host_name=host)
        for rank, (host, count) in enumerate(hosts.items())
    ]
    (finding,) = found(check_job(members, []).findings, "job-hardware-differs")
    assert finding.scope.hosts == ("host-c",)
    assert finding.scope.ranks == ()
    assert finding.evidence[1].text == "host-c: 7"


def test_a_host_that_could_not_be_read_is_no_difference() -> None:
    members = [
        member(0, host="host-a", gpus=GpuFacts(driver_version="570.86.15")),
        member(1, host="host-b", gpus=GpuFacts()),
    ]
    assert found(check_job(members, []).findings, "job-versions-differ") == []


def check_memory(facts: EnvFacts) -> list[Outcome]:
    if facts.host is None or facts.host.memory_total_bytes is None:
        return [missing(facts, "host.memory_total_bytes")]
    return [Passed(detail="seen")]


def check_limit(facts: EnvFacts) -> list[Outcome]:
    if facts.process is None or facts.process.nofile is None:
        return [missing(facts, "process.nofile")]
    if facts.process.nofile < 65536:
        return [Found(title="too low", severity=Severity.WARNING, evidence=(), explanation="", actions=())]
    return [Passed(detail="enough")]


MEMORY = Check(id="memory", title="memory", run=check_memory)
LIMIT = Check(id="limit", title="limit", run=check_limit)


def test_what_the_leader_collected_is_lent_to_the_ranks_of_its_host_only() -> None:
    leader = member(0, host="host-a", host_name="host-a")
    leader = dataclasses.replace(
        leader, facts=dataclasses.replace(leader.facts, host=HostFacts(memory_total_bytes=1))
    )
    shared = share_host_sections([leader, member(1), member(2, host="host-b")])
    assert shared[1].facts.host == HostFacts(memory_total_bytes=1)
    assert shared[2].facts.host is None
    assert isinstance(check_memory(shared[2].facts)[0], NotSeen)


def test_a_probe_is_lent_only_to_ranks_with_the_same_torch() -> None:
    probe = TorchProbe(state=ProbeState.OK, torch_version="2.9.1")
    other = TorchFacts(found=True, path="/elsewhere/torch", version="2.9.1")
    shared = share_host_sections([member(0, torch_probe=probe), member(1), member(2, torch=other)])
    assert shared[1].facts.torch_probe == probe
    assert shared[2].facts.torch_probe is None


def test_a_fault_of_one_rank_names_it_and_a_fault_of_all_names_none() -> None:
    def with_limit(rank: int, nofile: int) -> Member:
        return member(rank, process=ProcessFacts(nofile=nofile))

    one = check_job([with_limit(0, 1 << 20), with_limit(1, 1024)], [LIMIT]).findings
    everybody = check_job([with_limit(0, 1024), with_limit(1, 1024)], [LIMIT]).findings
    assert found(one, "limit")[0].scope.ranks == (1,)
    assert found(everybody, "limit")[0].scope.ranks == ()
    assert found(everybody, "limit")[0].scope.hosts == ("host-a",)
