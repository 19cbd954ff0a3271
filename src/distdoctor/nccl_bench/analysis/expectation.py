"""What bus bandwidth should this collective reach on this hardware, by which rule, and from which size on?

A formula over detected hardware comes first: links × speed × the share of it that healthy machines were published
to reach. Published figures for the same hardware come second. What neither knows is not judged.
"""

from __future__ import annotations

from distdoctor.nccl_bench.analysis.expected import Expectation, NoExpectation
from distdoctor.nccl_bench.analysis.expected_inside import inside_host
from distdoctor.nccl_bench.analysis.expected_network import across_hosts
from distdoctor.nccl_bench.analysis.machine import Machine, machine_of, num_hosts_of, shares_gpus
from distdoctor.nccl_bench.catalog.published import Published, published_for
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.rows import Group, Row

__all__ = ["Expectation", "NoExpectation", "expectation_of", "expected_busbw"]

MAX_ORIENTATION = 4

HOW_FROM_TABLE = "measure on the hosts themselves: `torchrun … -m distdoctor nccl-bench`"
HOW_NAMED = "give the table with its `# Using devices` lines, or measure on the hosts: `torchrun … -m distdoctor nccl-bench`"


def expectation_of(facts: BenchFacts, row: Row) -> Expectation | NoExpectation:
    """The expectation for one row."""
    return expected_busbw(facts, row.collective, row.group, row.num_ranks, at_once=row.concurrent)


def expected_busbw(
    facts: BenchFacts, collective: str, group: Group, num_ranks: int | None, *, at_once: bool = False
) -> Expectation | NoExpectation:
    """busbw in GB/s that `collective` should reach in `group`, or why nothing can be said.

    `at_once`: the other groups of the group's set run at the same time. Never judged: Gloo and CPU ranks, several
    ranks on one GPU, groups of one rank, hardware that the evidence does not show.
    """
    if num_ranks is None:
        return NoExpectation(reason="the number of ranks is not known")
    if num_ranks < 2:
        return NoExpectation(reason="one rank has no bus")
    if is_cpu_only(facts):
        return NoExpectation(
            reason="Gloo and CPUs: no published expectation; compare with a baseline of your own"
        )
    if shares_gpus(facts):
        return NoExpectation(
            reason="several ranks, or another job, share a GPU: nothing about links can be said"
        )
    num_hosts = num_hosts_of(facts, group, num_ranks)
    if num_hosts is None and _names_no_hardware(facts):
        return NoExpectation(
            reason="the hardware is not in the evidence: no GPU and no host is named", how=HOW_NAMED
        )
    if num_hosts is None:
        return NoExpectation(reason="over how many hosts the ranks spread is not known", how=_how(facts))
    machine = machine_of(facts, group)
    if num_hosts == 1:
        answer = inside_host(machine, collective, num_ranks)
        if isinstance(answer, Expectation) and answer.scheme == "pcie" and at_once:
            answer = "groups that run at once share PCIe"
    else:
        answer = across_hosts(
            machine, collective, num_ranks, num_hosts, plugin=tcp_plugin(facts), at_once=at_once
        )
    if isinstance(answer, Expectation):
        return answer
    return NoExpectation(
        reason=answer,
        how=_how(facts),
        orientation=_orientation(machine, collective, num_ranks, several_hosts=num_hosts > 1),
    )


def is_cpu_only(facts: BenchFacts) -> bool:
    """Gloo, or every rank on a CPU: no GPU fabric was measured."""
    if facts.backend == "gloo":
        return True
    return bool(facts.places) and facts.is_live and all(place.device == "cpu" for place in facts.places)


def _names_no_hardware(facts: BenchFacts) -> bool:
    log = facts.nccl_log
    return (
        not facts.places and not facts.hardware and not (log is not None and (log.gpu_models or log.platform))
    )


def tcp_plugin(facts: BenchFacts) -> str | None:
    """ "tcpx" or "tcpxo" where the log names one of Google's two plugins over TCP, whose numbers have nothing to do with RDMA's or with plain sockets'."""
    log = facts.nccl_log
    if log is None:
        return None
    text = " ".join([log.network or "", log.plugin or "", *log.networks]).lower()
    if "fastrak" in text or "tcpxo" in text:
        return "tcpxo"
    return "tcpx" if "tcpx" in text else None


def _how(facts: BenchFacts) -> str | None:
    return None if facts.origin is Origin.MEASURED else HOW_FROM_TABLE


def _orientation(
    machine: Machine, collective: str, num_ranks: int, *, several_hosts: bool
) -> tuple[Published, ...]:
    """What was published for as many ranks of the same GPUs, lowest first; nothing is judged by it."""
    if machine.kind is None:
        return ()
    same = [
        each
        for each in published_for(gpu=machine.kind.family, collective=collective, several_hosts=several_hosts)
        if each.num_ranks == num_ranks and each.form == machine.kind.form
    ]
    ordered = sorted(same, key=lambda each: each.busbw_gbps)
    if len(ordered) <= MAX_ORIENTATION:
        return tuple(ordered)
    return (ordered[0], *ordered[1 : MAX_ORIENTATION - 1], ordered[-1])
