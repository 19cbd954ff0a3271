"""Which strategies, and which combinations of them, can a number of ranks run?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from distdoctor.errors import UsageError
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import DataParallel, Schedule, Settings
from distdoctor.oom.shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One way to spread a job over the ranks, by the name that people type."""

    name: str
    settings: Settings


def combinations(num_ranks: int, shape: ModelShape, said: Settings | None = None) -> tuple[Combination, ...]:
    """Every combination that `num_ranks` ranks can run with a model of this shape, plain ones first.

    `said`: what holds for all of them, such as the model and the batch. What a model cannot be cut into is left out.
    """
    base = replace(said or Settings(), world_size=num_ranks)
    if num_ranks == 1:
        return _possible([("single", replace(base, strategy=DataParallel.NONE))])
    return _possible(
        [
            *_data_parallel(base, num_ranks),
            *_tensor_parallel(base, num_ranks, shape),
            *_pipelines(base, num_ranks),
            *_others(base, num_ranks, shape),
        ]
    )


_PLAIN = (
    DataParallel.DDP,
    DataParallel.ZERO_REDUNDANCY,
    DataParallel.ZERO1,
    DataParallel.ZERO2,
    DataParallel.ZERO3,
    DataParallel.FSDP,
)


def _data_parallel(base: Settings, num_ranks: int) -> Iterator[tuple[str, Settings]]:
    for kind in _PLAIN:
        yield kind.value, replace(base, strategy=kind)
    yield "fsdp2-keep-gathered", replace(base, strategy=DataParallel.FSDP, reshard_after_forward=False)
    if num_ranks >= 4 and num_ranks % 2 == 0:
        yield (
            "hsdp",
            replace(base, strategy=DataParallel.FSDP, dp_replicate=2, dp_shard=num_ranks // 2),
        )


def _tensor_parallel(base: Settings, num_ranks: int, shape: ModelShape) -> Iterator[tuple[str, Settings]]:
    alone = replace(base, strategy=DataParallel.NONE, tp=num_ranks)
    # Keys and values have fewer heads than queries.
    if shape.num_kv_heads % num_ranks == 0:
        yield "tp", replace(alone, sequence_parallel=True, loss_parallel=False)
        yield "tp-no-sp", replace(alone, sequence_parallel=False, loss_parallel=False)
        if shape.vocab_size % num_ranks == 0:
            yield "tp-loss-parallel", replace(alone, sequence_parallel=True, loss_parallel=True)
    if num_ranks >= 4 and num_ranks % 2 == 0 and shape.num_kv_heads % 2 == 0:
        yield "fsdp2-tp", replace(base, strategy=DataParallel.FSDP, tp=2)


_SCHEDULES = {
    Schedule.GPIPE: 1,
    Schedule.ONE_F_ONE_B: 1,
    Schedule.ZERO_BUBBLE: 1,
    Schedule.INTERLEAVED: 2,
    Schedule.ZBV: 2,
}
"""Schedule → stages on each rank."""


def _pipelines(base: Settings, num_ranks: int) -> Iterator[tuple[str, Settings]]:
    alone = replace(base, strategy=DataParallel.NONE, pp=num_ranks)
    for schedule, stages in _SCHEDULES.items():
        yield f"pp-{schedule.value}", replace(alone, schedule=schedule, virtual_stages=stages)


def _others(base: Settings, num_ranks: int, shape: ModelShape) -> Iterator[tuple[str, Settings]]:
    fsdp = replace(base, strategy=DataParallel.FSDP)
    yield "cp", replace(fsdp, cp=num_ranks)
    if shape.moe is not None:
        yield "ep", replace(fsdp, ep=num_ranks)
    if num_ranks >= 8 and num_ranks % 4 == 0:
        yield "pp-fsdp2-tp", replace(fsdp, pp=2, tp=2)


def _possible(wanted: list[tuple[str, Settings]]) -> tuple[Combination, ...]:
    """Those that resolve to a job."""
    found = []
    for name, settings in wanted:
        try:
            resolve(settings)
        except UsageError:
            continue
        found.append(Combination(name=name, settings=settings))
    return tuple(found)


ALL_NAMES = (
    "single",
    *(kind.value for kind in _PLAIN),
    "fsdp2-keep-gathered",
    "hsdp",
    "tp",
    "tp-no-sp",
    "tp-loss-parallel",
    "fsdp2-tp",
    *(f"pp-{schedule.value}" for schedule in _SCHEDULES),
    "cp",
    "ep",
    "pp-fsdp2-tp",
)
"""Every name that there is, in the order in which they are run."""


def choose(names: tuple[str, ...], *, num_ranks: int, said: Settings) -> tuple[Combination, ...]:
    """The combinations of `--strategy NAMES`; none: the job as it was said. Raises UsageError."""
    if said.model is None:
        raise UsageError("no model", hint="give --model tiny, another name, or a config.json")
    shape = said.model.shape
    if shape is None:
        raise UsageError(
            "a program needs the model's shape, not its number of parameters alone",
            hint="give --model NAME or config.json, or --layers, --hidden, --heads, --vocab",
        )
    said = replace(said, world_size=num_ranks)
    is_cut = any(getattr(said, name) for name in ("pp", "dp_replicate", "dp_shard", "cp", "tp", "ep", "etp"))
    if not names:
        return (_as_said(said),)
    if is_cut:
        return tuple(_as_said(replace(said, strategy=_kind(name))) for name in dict.fromkeys(names))
    possible = {each.name: each for each in combinations(num_ranks, shape, said)}
    if names == ("all",):
        return tuple(possible.values())
    return tuple(_chosen(name, possible, num_ranks) for name in dict.fromkeys(names))


def _as_said(settings: Settings) -> Combination:
    """One job as it was said, by what is special about it. Raises UsageError."""
    job = resolve(settings)
    cut = {name: degree for name, degree in asdict(job.mesh).items() if degree > 1}
    words = job.mesh.words()
    if job.strategy is DataParallel.NONE:
        name = words if cut else "single"
    else:
        # Over all ranks, as its name says alone.
        is_plain = len(cut) <= 1 and cut.keys() <= {"dp_replicate", "dp_shard"}
        name = job.strategy.value if is_plain else f"{job.strategy.value} {words}"
    return Combination(name=name, settings=settings)


def _kind(name: str) -> DataParallel:
    try:
        return DataParallel(name)
    except ValueError as error:
        raise UsageError(
            f"--strategy: `{name[:40]}` is no strategy that a --mesh goes with",
            hint=f"known: {', '.join(kind.value for kind in _PLAIN)}, none",
        ) from error


def _chosen(name: str, possible: dict[str, Combination], num_ranks: int) -> Combination:
    if name in possible:
        return possible[name]
    ranks = f"{num_ranks} rank{'s' if num_ranks > 1 else ''}"
    if name in ALL_NAMES:
        raise UsageError(
            f"--strategy {name} is not possible with this model on {ranks}",
            hint=f"possible: {', '.join(possible)}, or all",
        )
    raise UsageError(
        f"--strategy: `{name[:40]}` is not known", hint=f"on {ranks}: {', '.join(possible)}, or all"
    )
