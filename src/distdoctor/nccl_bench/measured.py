"""From what ranks left in the store to the facts of a run: of a complete one, or of one that a fault cut short."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from distdoctor.nccl_bench.analysis.pairing import Round
from distdoctor.nccl_bench.analysis.samples import (
    RankSamples,
    RowHeader,
    arrivals_from_samples,
    row_from_samples,
)
from distdoctor.nccl_bench.definitions import BARRIER, BY_NAME
from distdoctor.nccl_bench.facts.bench import BenchFacts, Contention, Origin, SetUp
from distdoctor.nccl_bench.facts.lateness import ArrivalsOfGroup
from distdoctor.nccl_bench.facts.matrix import Matrix
from distdoctor.nccl_bench.facts.places import Versions
from distdoctor.nccl_bench.facts.rows import Group, GroupKind, NotMeasured, Row, Style, WrongData
from distdoctor.nccl_bench.messages import Farewell
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.nccl_bench.own_log import unpack_log
from distdoctor.nccl_bench.pair_record import decode_matrix
from distdoctor.nccl_bench.plan import ARRIVAL_SIZES
from distdoctor.nccl_bench.record import CellRun, Record, read_records
from distdoctor.ranks.greeting import Layout, decode, places_of
from distdoctor.ranks.places import Place
from distdoctor.ranks.stalled import stopped_by
from distdoctor.ranks.store import Store, StoreLostError, TimedStore
from distdoctor.ranks.told import read_told
from distdoctor.ranks.watchdog import Stall


@dataclass(slots=True, kw_only=True)
class RunState:
    """What this process knows of the run under way; filled by the main thread, read by whoever reports."""

    options: BenchOptions
    world_size: int
    backend: str | None = None
    layout: Layout | None = None
    runs: list[CellRun] = field(default_factory=list)
    not_measured: list[NotMeasured] = field(default_factory=list)
    matrix_bytes: int = 0
    matrix_ranks: tuple[int, ...] = ()
    matrix_rounds: tuple[Round, ...] = ()
    matrix_sampled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A run as it is reported: its facts, and what hosts told about themselves, by the rank that told it."""

    facts: BenchFacts
    looks: Mapping[int, bytes]
    logs: Mapping[int, bytes]
    """NCCL's own log, by rank; compressed text."""


def gather_measured(state: RunState, store: Store, prefix: str, *, stall: Stall | None = None) -> Measured:
    """Everything that is in the store now. Takes seconds at most; a lost store gives what came before."""
    timed = TimedStore(store, prefix=prefix)
    try:
        records = read_records(timed, state.runs, state.world_size)
        looks, logs = read_told(timed, "look", state.world_size), read_told(timed, "log", state.world_size)
        pairs = _quietly_get(timed, "pairs")
        farewells = [
            farewell
            for data in read_told(timed, "farewell", state.world_size).values()
            if (farewell := decode(data, Farewell)) is not None
        ]
    finally:
        timed.close()
    return Measured(facts=_facts(state, records, pairs, farewells, stall), looks=looks, logs=logs)


def _quietly_get(store: TimedStore, key: str) -> bytes:
    try:
        return store.get(key) or b""
    except StoreLostError:
        return b""


def _facts(
    state: RunState,
    records: Mapping[int, Mapping[int, Mapping[int, Record]]],
    pairs: bytes,
    farewells: Sequence[Farewell],
    stall: Stall | None,
) -> BenchFacts:
    places = places_of(state.layout) if state.layout is not None else ()
    rows: list[Row] = []
    computing: list[Row] = []
    arrivals: list[ArrivalsOfGroup] = []
    for run in state.runs:
        repeats = records.get(run.number, {})
        for group in run.groups:
            samples = _samples(repeats, group)
            if not any(samples):
                continue
            row = _row(state, run, group, repeats, samples)
            if row is not None:
                (computing if run.computing else rows).append(row)
            if _tells_arrivals(run, group):
                told = arrivals_from_samples(group, run.cell.collective, run.cell.size_bytes, samples)
                arrivals += [told] if told is not None else []
    return BenchFacts(
        origin=Origin.MEASURED,
        label="this run",
        backend=state.backend,
        num_ranks=state.world_size,
        num_hosts=len({place.host for place in places}) or None,
        places=places,
        versions=_versions(state.layout),
        rows=tuple(rows),
        computing_rows=tuple(computing),
        not_measured=tuple(state.not_measured),
        arrivals=tuple(arrivals),
        matrix=_matrix(state, pairs),
        set_up=_set_up(state.layout, farewells),
        stopped=stopped_by(stall) if stall is not None else None,
        contention=_contention(farewells, places),
        shares_gpus=_gpus_are_shared(places),
    )


def _samples(repeats: Mapping[int, Mapping[int, Record]], group: Group) -> list[dict[int, RankSamples]]:
    """For each repeat, samples by rank of the group; what cannot be decoded is left out."""
    found = []
    for _, records in sorted(repeats.items()):
        decoded = {}
        for rank in group.ranks:
            if rank not in records:
                continue
            try:
                decoded[rank] = RankSamples.decode(records[rank].samples)
            except ValueError:
                continue
        found.append(decoded)
    return found


def _row(
    state: RunState,
    run: CellRun,
    group: Group,
    repeats: Mapping[int, Mapping[int, Record]],
    samples: Sequence[Mapping[int, RankSamples]],
) -> Row | None:
    mine = [
        (rank, record)
        for records in repeats.values()
        for rank, record in records.items()
        if rank in group.ranks
    ]
    definition = BY_NAME.get(run.cell.collective)
    header = RowHeader(
        collective=run.cell.collective,
        group=group,
        size_bytes=mine[0][1].size_bytes,
        dtype=state.options.dtype,
        op=state.options.op if definition is not None and definition.reduces else None,
        in_place=run.cell.in_place if run.cell.collective != BARRIER else None,
        style=run.cell.style,
        concurrent=run.concurrent,
    )
    row = row_from_samples(header, samples)
    if row is None:
        return None
    return replace(row, wrong=_wrong(mine), validated=any(record.validated for _, record in mine))


def _wrong(records: Sequence[tuple[int, Record]]) -> WrongData | None:
    wrong = {rank: record for rank, record in records if record.wrong_elements > 0}
    if not wrong:
        return None
    first = min(wrong)
    return WrongData(
        ranks=tuple(sorted(wrong)),
        elements=sum(record.wrong_elements for record in wrong.values()),
        example=wrong[first].wrong_example,
    )


def _tells_arrivals(run: CellRun, group: Group) -> bool:
    """Only where all ranks play the same part, and the transfer takes no time that a link could lengthen."""
    small = run.cell.collective == BARRIER or (
        run.cell.collective == "all_reduce" and run.cell.size_bytes in ARRIVAL_SIZES
    )
    return small and run.cell.style is Style.ISOLATED and len(group.ranks) > 1 and group.kind is GroupKind.JOB


def _matrix(state: RunState, pairs: bytes) -> Matrix | None:
    if not pairs or not state.matrix_ranks:
        return None
    return decode_matrix(
        pairs,
        size_bytes=state.matrix_bytes,
        ranks=state.matrix_ranks,
        planned=sum(len(each) for each in state.matrix_rounds),
        is_sampled=state.matrix_sampled,
    )


def _versions(layout: Layout | None) -> Versions:
    if layout is None or not layout.ranks:
        return Versions()
    first = layout.ranks[0]
    return Versions(torch=first.torch, nccl=first.nccl, cuda=first.cuda)


def _set_up(layout: Layout | None, farewells: Sequence[Farewell]) -> SetUp | None:
    if layout is None or not layout.ranks:
        return None
    return SetUp(
        import_torch_s=max(each.import_torch_s for each in layout.ranks),
        process_group_s=max(each.process_group_s for each in layout.ranks),
        first_collective_s=max((each.first_collective_s for each in farewells), default=None),
        communicators_s=max((each.communicators_s for each in farewells), default=None),
    )


def _contention(farewells: Sequence[Farewell], places: Sequence[Place]) -> tuple[Contention, ...]:
    hosts: dict[str, list[Farewell]] = {}
    names = {place.rank: place.host for place in places}
    for each in farewells:
        if each.rank in names:
            hosts.setdefault(names[each.rank], []).append(each)
    return tuple(
        Contention(
            host=host,
            load_1min=_largest(each.load_1min for each in group),
            num_cpus=next((each.num_cpus for each in group if each.num_cpus), None),
            involuntary_switches_per_s=max(
                each.involuntary_switches / max(each.seconds, 1e-3) for each in group
            ),
            cpu_pressure_pct=_largest(each.cpu_pressure_pct for each in group),
        )
        for host, group in hosts.items()
    )


def _largest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _gpus_are_shared(places: Sequence[Place]) -> bool:
    gpus = [(place.host, place.gpu_uuid or place.device) for place in places if place.device != "cpu"]
    return len(gpus) != len(set(gpus))


def with_log(facts: BenchFacts, logs: Mapping[int, bytes]) -> BenchFacts:
    """The facts with what NCCL's own log says: transports, and the algorithm beside each row."""
    from distdoctor.nccl_bench.analysis.transport_words import algorithm_of
    from distdoctor.nccl_bench.readers.nccl_log import merge_logs, read_nccl_log

    read = [read_nccl_log(unpack_log(packed), f"NCCL's log of rank {rank}") for rank, packed in logs.items()]
    found = [log for log in read if log is not None]
    if not found:
        return facts
    log = merge_logs(found)
    rows = []
    for row in facts.rows:
        chosen = algorithm_of(log, row.collective, row.size_bytes)
        definition = BY_NAME.get(row.collective)
        if chosen is None and definition is not None and definition.is_split and row.num_ranks:
            # Some versions log the bytes of one rank's part.
            chosen = algorithm_of(log, row.collective, row.size_bytes // row.num_ranks)
        rows.append(
            row if chosen is None else replace(row, algorithm=chosen.algorithm, protocol=chosen.protocol)
        )
    return replace(facts, nccl_log=log, rows=tuple(rows))
