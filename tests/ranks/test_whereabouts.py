"""A rank that entered a step with all others and then did something else."""

from __future__ import annotations

from distdoctor.ranks.watchdog import Whereabouts
from distdoctor.ranks.whereabouts import apart_from_others, words_of

TORCH = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
LOOP = "/opt/venv/lib/python3.11/site-packages/distdoctor/nccl_bench/measure/timing.py"


def at(rank: int, file: str) -> Whereabouts:
    return Whereabouts(rank=rank, file=file, line=7, function="work")


def test_the_rank_in_other_code_stands_out() -> None:
    where = (at(0, TORCH), at(1, "/job/hook.py"), at(2, LOOP))
    assert [each.rank for each in apart_from_others(where)] == [1]
    assert words_of(where[1]) == "hook.py line 7, in work"


def test_ranks_that_wait_at_two_places_of_the_loop_accuse_nobody() -> None:
    assert apart_from_others((at(0, TORCH), at(1, LOOP), at(2, TORCH))) == ()


def test_when_all_are_elsewhere_nobody_stands_out() -> None:
    assert apart_from_others((at(0, "/job/a.py"), at(1, "/job/b.py"))) == ()
    assert apart_from_others(()) == ()
