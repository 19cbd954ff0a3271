"""Did the ranks communicate at all? With one rank there is no bus, and a bandwidth of 0 is no measurement."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.nccl_bench.checks.base import BenchCheck, Found, NotApplicable, Outcome, Passed, not_seen
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team


def check_ranks_alone(facts: BenchFacts) -> Sequence[Outcome]:
    """Critical when every process ran alone; a warning for one table of one rank, which says nothing of a network."""
    table = facts.table
    if table is not None and table.each_alone:
        return [_each_alone(facts, table.processes)]
    if facts.is_live:
        return [NotApplicable(detail="this run's ranks are known to be joined")]
    if facts.num_ranks is None:
        if facts.rows:
            return [
                not_seen(
                    facts, f"{facts.label} does not tell how many ranks took part", what="the number of ranks"
                )
            ]
        return [not_seen(facts, f"{facts.label} holds no measured rows", what="the number of ranks")]
    if facts.num_ranks == 1 and table is not None:
        return [_one_rank(facts)]
    if facts.num_ranks == 1:
        return [NotApplicable(detail="one rank: there is no network between ranks")]
    return [Passed(detail=f"{facts.num_ranks} ranks took part")]


def _each_alone(facts: BenchFacts, processes: int | None) -> Found:
    proven = processes is not None and processes > 1
    what = f"{processes} processes" if proven else "several processes"
    several = (facts.num_ranks or 1) > 1
    alone = f"{facts.num_ranks} GPUs each" if several else "one GPU each"
    return Found(
        title=f"no network was tested: {what} ran alone, {alone}",
        severity=Severity.CRITICAL if proven else Severity.WARNING,
        confidence=Confidence.HIGH if proven else Confidence.MEDIUM,
        evidence=(_no_bus(facts), *_started(facts, processes)),
        explanation=(
            "Each process began its ranks at 0 and printed a table of its own: they were started together and never "
            "joined. nccl-tests does so when it is built without MPI support. "
            + (
                "The numbers are those of the GPUs of one host, and say nothing of the network between hosts."
                if several
                else "A bus bandwidth of 0 then means that there was no bus, not that it is slow; algbw is the speed "
                "of a copy inside one GPU."
            )
            + ("" if proven else " Runs with one GPU, repeated by hand, look the same.")
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Build nccl-tests with MPI, and start it by the launcher of the same MPI",
                command="make MPI=1 MPI_HOME=/usr/lib/x86_64-linux-gnu/openmpi && mpirun -np 16 ./build/all_reduce_perf_mpi -b 8 -e 8G -f 2 -g 1",
            ),
            Action(
                team=Team.JOB_OWNER,
                text="Or measure without MPI, by the launcher of the training job",
                command="torchrun --nnodes=2 --nproc-per-node=8 … --no-python distdoctor nccl-bench",
            ),
        ),
        cause_class="config",
        fault=Fault.CONFIG,
    )


def _one_rank(facts: BenchFacts) -> Found:
    return Found(
        key="one",
        title="no network was tested: the test ran with one rank",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=(_no_bus(facts),),
        explanation=(
            "With one rank a collective is a copy inside one GPU: bus bandwidth is 0 because there is no bus. If more "
            "ranks were meant, the processes did not join: nccl-tests was built without MPI support, or -g 1 was left."
        ),
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="Start it over all GPUs: -g for one process, an MPI build for several",
                command="./build/all_reduce_perf -b 8 -e 8G -f 2 -g 8",
            ),
        ),
        cause_class="config",
        fault=Fault.CONFIG,
    )


def _no_bus(facts: BenchFacts) -> Evidence:
    if (facts.num_ranks or 1) > 1:
        text = "the list of ranks begins at 0 several times: each process is a job of its own"
        return Evidence(text=text, value=facts.num_ranks, unit="ranks a job", source=facts.label)
    average = facts.table.average_busbw_gbps if facts.table is not None else None
    text = "the table lists one rank, so that it has no bus bandwidth"
    if average == 0:
        text = "the table lists one rank; its average bus bandwidth of 0 GB/s is no measurement"
    return Evidence(text=text, value=1, unit="rank", expected="2 or more", source=facts.label)


def _started(facts: BenchFacts, processes: int | None) -> list[Evidence]:
    if processes is None:
        return []
    return [
        Evidence(text=f"{processes} processes were started together", value=processes, source=facts.label)
    ]


CHECK = BenchCheck(id="bench-ranks-alone", title="whether the ranks were joined", run=check_ranks_alone)
