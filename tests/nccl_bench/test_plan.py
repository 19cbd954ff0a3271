"""The order of a run: every host inside itself, rails alone and together, the whole job, the mesh."""

from __future__ import annotations

from distdoctor.nccl_bench.definitions import BARRIER, NAMES
from distdoctor.nccl_bench.facts.rows import GroupKind, Style
from distdoctor.nccl_bench.mesh import parse_mesh
from distdoctor.nccl_bench.options import BenchOptions
from distdoctor.nccl_bench.plan import Stage, make_plan
from distdoctor.ranks.places import Place

ALL = (*NAMES, BARRIER)


def places(num_hosts: int, ranks_each: int) -> tuple[Place, ...]:
    return tuple(
        Place(rank=host * ranks_each + local, host=f"host-{host}", local_rank=local)
        for host in range(num_hosts)
        for local in range(ranks_each)
    )


def plan(num_hosts: int, ranks_each: int, **options: object) -> tuple[Stage, ...]:
    return make_plan(
        places(num_hosts, ranks_each),
        BenchOptions(**options),
        "gloo",
        supported=ALL,  # type: ignore[arg-type]
    )


def test_several_hosts_begin_inside_themselves_then_rails_then_the_job() -> None:
    stages = plan(3, 2)
    assert [stage.title for stage in stages] == [
        "every host inside itself, all at once",
        "rails, each alone",
        "rails, all at once",
        "all 6 ranks",
    ]
    inside, alone, together, job = stages
    assert [group.ranks for group in inside.turns[0]] == [(0, 1), (2, 3), (4, 5)]
    assert [[group.ranks for group in turn] for turn in alone.turns] == [[(0, 2, 4)], [(1, 3, 5)]]
    assert [group.ranks for group in together.turns[0]] == [(0, 2, 4), (1, 3, 5)]
    assert job.turns[0][0].kind is GroupKind.JOB


def test_one_host_has_the_job_only() -> None:
    assert [stage.name for stage in plan(1, 8)] == ["job"]


def test_one_rank_a_host_has_no_rails_but_the_job_itself() -> None:
    assert [stage.name for stage in plan(4, 1)] == ["job"]


def test_hosts_with_unequal_ranks_are_in_the_rails_that_they_have() -> None:
    uneven = (*places(2, 2), Place(rank=4, host="host-9", local_rank=0))
    stages = make_plan(uneven, BenchOptions(), "gloo", supported=ALL)
    rails = next(stage for stage in stages if stage.title == "rails, all at once")
    assert [group.ranks for group in rails.turns[0]] == [(0, 2, 4), (1, 3)]
    inside = next(stage for stage in stages if stage.name == "hosts")
    assert [group.ranks for group in inside.turns[0]] == [(0, 1), (2, 3)]


def test_who_arrives_late_is_measured_first_and_isolated() -> None:
    job = plan(1, 4)[-1]
    first, second, third = job.cells[:3]
    assert (first.collective, first.style) == (BARRIER, Style.ISOLATED)
    assert {(each.collective, each.style) for each in (second, third)} == {("all_reduce", Style.ISOLATED)}


def test_what_the_backend_refuses_is_not_planned() -> None:
    stages = make_plan(places(1, 4), BenchOptions(), "gloo", supported=("all_gather",))
    assert {cell.collective for cell in stages[-1].cells} == {"all_gather"}


def test_a_mesh_adds_each_dimension_alone_and_at_once() -> None:
    stages = plan(1, 4, mesh=parse_mesh("dp=2,tp=2"))
    assert [stage.title for stage in stages[1:]] == [
        "mesh dimension dp, each alone",
        "mesh dimension dp, all at once",
        "mesh dimension tp, each alone",
        "mesh dimension tp, all at once",
    ]
    assert [[group.ranks for group in turn] for turn in stages[1].turns] == [[(0, 2)], [(1, 3)]]


def test_sizes_and_styles_are_those_asked_for() -> None:
    job = plan(1, 2, collectives=("all_reduce",), sizes=(8, 64), styles=(Style.STREAMING, Style.ISOLATED))[-1]
    swept = job.cells[3:]
    assert [(cell.size_bytes, cell.style) for cell in swept] == [
        (8, Style.STREAMING),
        (64, Style.STREAMING),
        (8, Style.ISOLATED),
        (64, Style.ISOLATED),
    ]
