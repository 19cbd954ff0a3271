"""Which communicators are of one kind."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from distdoctor.straggler.analysis.collectives.group_kinds import MAX_KINDS, GroupKinds, kinds_of
from distdoctor.straggler.analysis.collectives.match import match
from distdoctor.straggler.facts.collectives import CollectiveTimings
from straggler.simulated_mesh import Mesh


def told(timings: CollectiveTimings) -> GroupKinds:
    matched = match(timings)
    assert matched is not None
    return kinds_of(matched)


def with_purposes(timings: CollectiveTimings, *purposes: str | None) -> CollectiveTimings:
    groups = [replace(group, what=what) for group, what in zip(timings.groups, purposes, strict=True)]
    return replace(timings, groups=tuple(groups))


MESH = Mesh(dp=4, tp=2, steps=3, layers=2).run()


def test_without_purposes_the_pattern_of_ranks_tells_kinds() -> None:
    kinds = told(MESH)

    assert kinds.kind_of.tolist() == [0, 0, 0, 0, 1, 1]
    assert kinds.names == ("groups of 2 ranks in a row", "groups of 4 ranks, 2 apart")
    assert kinds.regular.all()


def test_shared_purposes_tell_kinds() -> None:
    kinds = told(with_purposes(MESH, *["mesh_tp"] * 4, *["mesh_dp"] * 2))

    assert kinds.names == ("mesh_tp", "mesh_dp")


def test_a_name_for_each_group_says_nothing_of_kinds() -> None:
    kinds = told(with_purposes(MESH, "c1", "c2", "c3", "c4", "c5", "c6"))

    assert kinds.kind_of.tolist() == [0, 0, 0, 0, 1, 1]
    assert kinds.names == ("groups of 2 ranks in a row", "groups of 4 ranks, 2 apart")


def test_undefined_is_no_purpose() -> None:
    assert told(with_purposes(MESH, *["undefined"] * 6)).kind_of.tolist() == [0, 0, 0, 0, 1, 1]


def test_the_only_group_is_called_by_its_purpose() -> None:
    timings = Mesh(dp=4, tp=1, steps=3, layers=2, record_tp=False).run()

    assert told(with_purposes(timings, "default_pg")).names == ("default_pg",)


def test_groups_that_share_ranks_do_not_run_in_step() -> None:
    one = Mesh(dp=4, tp=1, steps=3, layers=2, record_tp=False).run()
    twice = replace(one, groups=(*one.groups, replace(one.groups[0], name="again")))
    group = one.group.copy()
    group[one.seq == 1] = 1

    assert told(replace(twice, group=group)).regular.tolist() == [False]


def test_a_thousand_kinds_are_kept_in_bounds() -> None:
    groups = tuple(replace(group, ranks=None, size=10 + i) for i, group in enumerate(MESH.groups * 100))
    group = np.arange(len(MESH.group), dtype=np.int32) % len(groups)
    kinds = told(replace(MESH, groups=groups, group=group))

    assert len(kinds.names) == MAX_KINDS
    assert kinds.names[-1] == "other groups"
    assert not kinds.regular[-1]
