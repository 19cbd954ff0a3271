"""bench-stopped and the culprits of a report: who ended the run, and who only waited."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as replace_struct

from distdoctor.nccl_bench.analysis.culprits import culprits_of
from distdoctor.nccl_bench.checks import slow_host, slow_link, stopped
from distdoctor.nccl_bench.checks.base import Found, NotApplicable, Passed
from distdoctor.nccl_bench.checks.stopped import check_stopped
from distdoctor.nccl_bench.facts.bench import BenchFacts, Origin
from distdoctor.nccl_bench.facts.places import HostHardware
from distdoctor.ranks.blame import Cause, blame
from distdoctor.ranks.lost import Lost, LostRank, Stopped
from distdoctor.report.checking import run_check
from distdoctor.report.model import Confidence, Finding, Ignored, Severity
from nccl_bench.bench_builders import live, nics, places
from nccl_bench.matrix_builders import Cluster, make_places, measured

PHASE = "all_gather 1 MiB in job"


def lost(rank: int, state: Lost, *, host: str = "host-b", pid: int | None = 4242) -> LostRank:
    return LostRank(rank=rank, state=state, host=host, pid=pid, last_phase=PHASE)


def run_of(*absent: LostRank, backend: str = "gloo", num_hosts: int = 2, **fields: Any) -> BenchFacts:
    values: dict[str, Any] = {
        "reason": "no progress for 30 s",
        "phase": PHASE,
        "inside": tuple(rank for rank in range(4) if rank not in {each.rank for each in absent}),
        **fields,
    }
    return live(
        (),
        num_ranks=4,
        num_hosts=num_hosts,
        places=places(4, num_hosts, gpu_model=None if backend == "gloo" else "NVIDIA H100 80GB HBM3"),
        backend=backend,
        stopped=Stopped(lost=absent, **values),
    )


def only(outcomes: Sequence[object]) -> Found:
    (outcome,) = outcomes
    assert isinstance(outcome, Found)
    return outcome


@pytest.mark.parametrize(
    ("state", "word", "cause"),
    [
        (Lost.STOPPED, "is stopped", "rank_not_arrived"),
        (Lost.GONE, "is gone", "rank_died"),
        (Lost.FROZEN, "does not answer", "rank_not_arrived"),
        (Lost.LATE, "has not arrived", "rank_not_arrived"),
        (Lost.UNKNOWN, "has not arrived", "rank_not_arrived"),
    ],
)
def test_a_lost_rank_is_named_with_host_pid_phase_and_who_waited(state: Lost, word: str, cause: str) -> None:
    found = only(check_stopped(run_of(lost(3, state))))
    assert (found.severity, found.confidence) == (Severity.CRITICAL, Confidence.HIGH)
    assert found.title == f"rank 3 (host-b) {word}: the others waited"
    assert found.scope.ranks == (3,)
    assert found.scope.hosts == ("host-b",)
    assert found.cause_class == cause
    text = " ".join(each.text for each in found.evidence)
    assert "pid 4242" in text
    assert PHASE in text
    assert "ranks 0-2 waited there" in text


def test_a_stopped_process_gets_the_command_that_continues_it() -> None:
    found = only(check_stopped(run_of(lost(3, Lost.STOPPED))))
    assert "kill -CONT 4242" in (found.actions[0].command or "")
    without_pid = only(check_stopped(run_of(lost(3, Lost.STOPPED, pid=None))))
    assert without_pid.actions[0].command is None


def test_of_several_the_earliest_cause_is_named_and_the_others_are_consequences() -> None:
    facts = run_of(lost(1, Lost.LATE, host="host-a"), lost(2, Lost.GONE), lost(3, Lost.FROZEN))
    found = only(check_stopped(facts))
    assert found.scope.ranks == (2,)
    assert any("ranks 1,3 are missing too" in each.text for each in found.evidence)


def test_of_several_that_are_gone_one_is_the_cause_and_it_is_not_known_which() -> None:
    found = only(check_stopped(run_of(lost(2, Lost.GONE), lost(3, Lost.GONE))))
    assert found.title == "ranks 2-3 (host-b) are gone: the others waited"
    assert found.confidence is Confidence.MEDIUM
    assert "one is the cause" in found.explanation


def test_ranks_that_raised_the_same_are_named_together() -> None:
    """An interface that no rank has: whoever says so first is no more at fault."""
    errors = tuple((rank, f"RuntimeError: no interface eth{rank}, at 0x7f{rank}a") for rank in (1, 0, 2, 3))
    found = only(check_stopped(run_of(errors=errors)))
    assert found.scope is not None
    assert found.scope.ranks == (0, 1, 2, 3)
    assert found.title == "ranks 0-3 could not go on: they raised an error"
    assert "the same error" in found.explanation
    assert "one is the cause" not in found.explanation


def test_a_rank_that_raised_something_else_is_not_named_with_the_first() -> None:
    errors = ((1, "MemoryError: no room"), (2, "ValueError: no such thing"))
    found = only(check_stopped(run_of(errors=errors)))
    assert found.scope is not None
    assert found.scope.ranks == (1,)


def test_a_rank_that_raised_is_told_in_its_own_words() -> None:
    facts = run_of(lost(1, Lost.GONE, host="host-a"), errors=((1, "RuntimeError: no room for the buffer"),))
    found = only(check_stopped(facts))
    assert found.title == "rank 1 (host-a) could not go on: it raised an error"
    assert found.cause_class == "rank_died:python_exception"
    assert "no room for the buffer" in found.evidence[0].text
    assert "ranks 0,2-3 waited there" in found.evidence[2].text


def test_the_place_where_a_rank_is_tells_what_it_does_instead() -> None:
    late = replace(lost(0, Lost.LATE, host="host-a"), doing="train.py line 72, in load_batch")
    found = only(check_stopped(run_of(late)))
    assert "train.py line 72, in load_batch" in found.evidence[0].text


@pytest.mark.parametrize(
    "words",
    [
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4242",
        "DistBackendError: NCCL error: remote process exited or there was a network error",
        "RuntimeError: Connection reset by peer",
        "DistBackendError: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting",
        "RuntimeError: Broken pipe",
    ],
)
def test_who_only_lost_its_peer_is_not_the_cause(words: str) -> None:
    facts = run_of(lost(0, Lost.GONE, host="host-a"), lost(2, Lost.GONE), errors=((0, words),))
    found = only(check_stopped(facts))
    assert found.scope.ranks == (2,)
    assert found.title == "rank 2 (host-b) is gone: the others waited"


def test_an_error_of_its_own_comes_before_those_that_it_causes() -> None:
    told = blame(
        Stopped(
            reason="",
            phase=PHASE,
            lost=(lost(0, Lost.GONE), lost(1, Lost.GONE)),
            errors=((0, "RuntimeError: Connection closed by peer"), (1, "ValueError: bad value")),
        )
    )
    assert told.cause is Cause.RAISED
    assert [each.rank for each in told.culprits] == [1]
    assert [each.rank for each in told.victims] == [0]


def test_all_inside_and_nobody_out_is_stuck_communication() -> None:
    found = only(check_stopped(run_of(backend="nccl")))
    assert (found.severity, found.cause_class) == (Severity.CRITICAL, "comm_stuck")
    assert found.confidence is Confidence.MEDIUM
    assert found.scope.ranks == ()
    commands = " ".join(each.command or "" for each in found.actions)
    assert "NCCL_P2P_DISABLE=1" in commands
    assert "NCCL_SOCKET_IFNAME" in commands
    one_host = only(check_stopped(run_of(backend="nccl", num_hosts=1)))
    assert "NCCL_SOCKET_IFNAME" not in " ".join(each.command or "" for each in one_host.actions)
    gloo = only(check_stopped(run_of()))
    assert "GLOO_SOCKET_IFNAME" in " ".join(each.command or "" for each in gloo.actions)


def test_a_connection_that_broke_between_live_ranks_accuses_no_rank() -> None:
    found = only(check_stopped(run_of(errors=((0, "RuntimeError: Connection reset by peer"),))))
    assert found.cause_class == "network:unreachable_peer"
    assert found.scope.ranks == ()


@pytest.mark.parametrize(
    ("fields", "confidence"),
    [
        ({"reason": "interrupted (Ctrl-C)", "by_user": True}, Confidence.HIGH),
        ({"reason": "the launcher ended the job (SIGTERM)"}, Confidence.MEDIUM),
    ],
)
def test_a_run_that_somebody_ended_is_no_fault(fields: dict[str, Any], confidence: Confidence) -> None:
    found = only(check_stopped(run_of(**fields)))
    assert (found.severity, found.confidence, found.cause_class) == (Severity.INFO, confidence, None)


def test_ctrl_c_while_a_rank_is_stopped_still_names_it_but_not_one_that_was_ended_with_the_others() -> None:
    by_user = {"reason": "interrupted (Ctrl-C)", "by_user": True}
    assert only(check_stopped(run_of(lost(3, Lost.STOPPED), **by_user))).severity is Severity.CRITICAL
    for state in (Lost.GONE, Lost.LATE, Lost.UNKNOWN):
        assert only(check_stopped(run_of(lost(3, state), **by_user))).severity is Severity.INFO


def test_a_lost_store_accuses_nobody_but_the_meeting_point() -> None:
    found = only(check_stopped(run_of(only_this_rank=True)))
    assert found.cause_class == "cascade:store_host_gone"
    assert found.scope.hosts == ("host-a",)
    assert found.confidence is Confidence.MEDIUM


def test_a_run_that_ended_passes_and_a_table_has_no_run() -> None:
    (ended,) = check_stopped(live((), num_ranks=4))
    assert isinstance(ended, Passed)
    (table,) = check_stopped(BenchFacts(origin=Origin.TABLE, label="table.txt"))
    assert isinstance(table, NotApplicable)


# --- culprits ---


def findings_of(facts: BenchFacts) -> tuple[Finding, ...]:
    hosts = tuple(dict.fromkeys(place.host for place in facts.places))
    checks = (stopped.CHECK, slow_host.CHECK, slow_link.CHECK)
    # As a report does it: a run on one host puts the host on every finding.
    only_host = hosts if len(hosts) == 1 else ()
    return tuple(each for check in checks for each in run_check(check, facts, hosts=only_host)[0])


def test_the_lost_rank_is_the_culprit_and_those_that_waited_are_one_victim() -> None:
    facts = run_of(lost(3, Lost.STOPPED), backend="nccl")
    culprit, victim = culprits_of(facts, findings_of(facts))
    assert (culprit.role, culprit.rank, culprit.host, culprit.local_rank) == ("culprit", 3, "host-b", 1)
    assert culprit.gpu is not None
    assert culprit.gpu.index == 1
    assert (victim.role, victim.ranks) == ("victim", (0, 1, 2))


def test_a_slow_host_is_a_culprit_with_its_port() -> None:
    hosts = make_places(num_hosts=4, ranks_per_host=2)
    hardware = tuple(HostHardware(host=f"host-{index}", nics=nics(1, 400)) for index in range(4))
    cluster = Cluster(places=hosts, egress={"host-2": 0.1})
    facts = live((), num_ranks=8, places=hosts, hardware=hardware, matrix=measured(cluster))
    (culprit,) = culprits_of(facts, findings_of(facts))
    assert (culprit.rank, culprit.host, culprit.nic_port) == (None, "host-2", "mlx5_0/1")


def test_a_host_with_one_rank_is_named_with_it() -> None:
    hosts = make_places(num_hosts=4)
    facts = live(
        (),
        num_ranks=4,
        places=hosts,
        hardware=(),
        matrix=measured(Cluster(places=hosts, egress={"host-2": 0.1})),
    )
    (culprit,) = culprits_of(facts, findings_of(facts))
    assert (culprit.rank, culprit.host) == (2, "host-2")


@pytest.mark.parametrize(
    "cluster",
    [
        Cluster(places=make_places(num_hosts=2), egress={"host-0": 0.1}),
        Cluster(places=make_places(num_hosts=4), links={("host-0", "host-1"): 0.1}),
        Cluster(places=make_places(num_hosts=4), egress={"host-0": 0.1, "host-1": 0.1}),
        Cluster(places=make_places(num_hosts=4)),
    ],
)
def test_a_path_or_a_group_is_nobodys_fault_by_name(cluster: Cluster) -> None:
    facts = live(
        (), num_ranks=len(cluster.places), places=cluster.places, hardware=(), matrix=measured(cluster)
    )
    assert culprits_of(facts, findings_of(facts)) == ()


def test_leads_infos_ignored_findings_and_the_only_host_name_nobody() -> None:
    facts = run_of(lost(3, Lost.STOPPED))
    (finding,) = [each for each in findings_of(facts) if each.id == "bench-stopped"]
    for weaker in (
        replace_struct(finding, confidence=Confidence.LOW),
        replace_struct(finding, severity=Severity.INFO),
        replace_struct(finding, ignored=Ignored(by="--ignore")),
    ):
        assert culprits_of(facts, (weaker,)) == ()
    stuck = run_of(num_hosts=1)
    assert culprits_of(stuck, findings_of(stuck)) == ()
