"""Who is not accused after all: stages that nobody told, mates that wait inside, steps that are counted differently."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from distdoctor.straggler.analysis.peer_median import row_medians
from distdoctor.straggler.analysis.peers import UNEVEN_DIMENSIONS, Peers
from distdoctor.straggler.analysis.ranks.accused_cost import in_ms
from distdoctor.straggler.analysis.ranks.blocks import RankPattern, Shape, pattern_of
from distdoctor.straggler.analysis.ranks.causes import Cause, explain_suspect
from distdoctor.straggler.analysis.ranks.gates import FEW_STEPS
from distdoctor.straggler.analysis.ranks.hosts import (
    MIN_SHARE,
    AccusedRank,
    SlowHost,
    rows_by_host,
    slow_hosts,
)
from distdoctor.straggler.analysis.ranks.judgement import Gate, Pattern, Suspect
from distdoctor.straggler.analysis.ranks.kinds import TwoKinds
from distdoctor.straggler.analysis.ranks.numbering import steps_off
from distdoctor.straggler.analysis.ranks.own_time import (
    Basis,
)
from distdoctor.straggler.analysis.ranks.suspects import Scene, worst_first
from distdoctor.straggler.analysis.ranks.threshold import FLOOR, family_error
from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.steps import StepTimings

# The part of the error probability that is for hosts; the rest is in `suspects`.
HOST_SHARE = 0.2

# A rank that shares so much of an accused rank's effect may be slow for the same reason. Our own threshold, as for hosts.
COMPANION_SHARE = 0.5

# From this share of its peers on a kind of ranks is no exception. Our own threshold.
NO_EXCEPTION = 0.4

# Hosts that are unlike their peers are exceptions up to this share of the job's. Our own threshold.
FEW_HOSTS = 0.25

# Ranks that differ in these coordinates alone wait for one another inside of forward and backward.
MATE_DIMENSIONS = frozenset({"tp", "etp", "cp", "sp", "dsp"})


# Causes that more experts' tokens or a longer part of a sequence look like.
_BY_UNEVEN_WORK = frozenset({Cause.COMPUTE, Cause.MIXED, Cause.UNKNOWN, Cause.OUTSIDE})


def counted_alike(scene: Scene, suspects: tuple[Suspect, ...]) -> tuple[Suspect, ...]:
    """Accuses nobody whose times are set against other steps of its peers."""
    checked = []
    for each in suspects:
        if each.is_accused:
            peer = scene.peer_ms[scene.peers.group_of[each.row]]
            own = in_ms(scene.excess[each.row], peer, scene.own_time.scale_ms)
            if steps_off(own, peer):
                each = replace(each, failed=(Gate.NUMBERING,))  # noqa: PLW2901 - the same suspect, doubted
        checked.append(each)
    return tuple(sorted(checked, key=worst_first))


def not_of_two_kinds(
    kinds: TwoKinds | None,
    suspects: tuple[Suspect, ...],
    hosts: tuple[SlowHost, ...],
    timings: StepTimings,
    peers: Peers,
) -> tuple[tuple[Suspect, ...], tuple[SlowHost, ...]]:
    """Accuses nobody of the longer kind, where about as many ranks take long as do not.

    But for few hosts of many: each is half of its pipeline stage where a stage has two, and still an exception.
    """
    if kinds is None or len(kinds.longer) < NO_EXCEPTION * kinds.num_ranks:
        return suspects, hosts
    if _are_few_of_many(hosts, timings) and set(kinds.longer) <= {row for each in hosts for row in each.rows}:
        return suspects, hosts
    longer = set(kinds.longer)
    for each in hosts:
        group = peers.members(int(peers.group_of[each.rows[0]]))
        if len(set(group.tolist()) & set(each.rows)) >= NO_EXCEPTION * len(group):
            longer |= set(each.rows)
    doubted = tuple(
        replace(each, failed=(*each.failed, Gate.HALF)) if each.row in longer and each.is_accused else each
        for each in suspects
    )
    return tuple(sorted(doubted, key=worst_first)), tuple(
        each for each in hosts if not longer & set(each.rows)
    )


def _are_few_of_many(hosts: tuple[SlowHost, ...], timings: StepTimings) -> bool:
    """Whole hosts, and few enough of the job's to say that they alone differ from the ranks that do their work."""
    by_host = rows_by_host(timings.places)
    return all(set(by_host[each.host]) == set(each.rows) for each in hosts) and 0 < len(
        hosts
    ) <= FEW_HOSTS * len(by_host)


def doubt_groups(
    suspects: tuple[Suspect, ...], hosts: tuple[SlowHost, ...], timings: StepTimings, scene: Scene
) -> tuple[tuple[Suspect, ...], tuple[SlowHost, ...], RankPattern | None]:
    """Without coordinates a block of slow ranks may be a pipeline stage: then nobody in it is accused.

    Returns the pattern that made the doubt, None when there is none.
    """
    if scene.peers.known:
        if UNEVEN_DIMENSIONS & set(scene.peers.given_up):
            suspects = tuple(sorted(map(_doubt_uneven, suspects), key=worst_first))
        return _doubt_mates(suspects, hosts, timings.places), hosts, None
    lasting = {each.row for each in suspects if each.is_accused and each.pattern is not Pattern.INTERMITTENT}
    rows = lasting | {row for host in hosts for row in host.rows}
    num_ranks = timings.world_size or timings.num_ranks
    pattern = pattern_of([timings.ranks[row] for row in rows], num_ranks)
    if pattern.shape is Shape.SCATTERED and rows:
        # Of a stage that is a little heavier only the slowest ranks cross the threshold.
        wider = pattern_of(
            [timings.ranks[row] for row in rows | _companions(scene, suspects, rows)], num_ranks
        )
        pattern = wider if wider.shape in (Shape.BLOCK, Shape.STRIDED) else pattern
    if pattern.shape is Shape.SCATTERED or _is_one_host(rows, timings, pattern):
        return suspects, hosts, None
    doubted = tuple(
        replace(each, failed=(*each.failed, Gate.KIND)) if each.row in lasting else each for each in suspects
    )
    return doubted, (), pattern


def _doubt_uneven(suspect: Suspect) -> Suspect:
    """Accuses nobody for computing longer where others have other experts or parts of sequences; input is no such part."""
    lasting = suspect.is_accused and suspect.pattern is not Pattern.INTERMITTENT
    if not lasting or explain_suspect(suspect).cause not in _BY_UNEVEN_WORK:
        return suspect
    return replace(suspect, failed=(Gate.UNEVEN,))


def _doubt_mates(
    suspects: tuple[Suspect, ...], hosts: tuple[SlowHost, ...], places: Sequence[Place]
) -> tuple[Suspect, ...]:
    """Accuses no tensor or context parallel group as a whole: its ranks wait for one another inside of every layer.

    Where that waiting is in their own time, all of them look as slow as the one that is. A slow host stays accused.
    """
    mates: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for row, place in enumerate(places):
        if MATE_DIMENSIONS & place.coords.keys():
            rest = tuple(
                sorted((name, at) for name, at in place.coords.items() if name not in MATE_DIMENSIONS)
            )
            mates.setdefault(rest, []).append(row)
    folded = {row for host in hosts for row in host.rows}
    accused = {each.row for each in suspects if each.is_accused and each.row not in folded}
    doubted = {
        row
        for rows in mates.values()
        if len(rows) > 1 and len(accused & set(rows)) >= max(2, MIN_SHARE * len(rows))
        for row in rows
    }
    return tuple(
        replace(each, failed=(Gate.MATES,)) if each.is_accused and each.row in doubted else each
        for each in suspects
    )


def _companions(scene: Scene, suspects: tuple[Suspect, ...], rows: set[int]) -> set[int]:
    """Ranks that share at least COMPANION_SHARE of the least effect of the accused, in the steps of the first one."""
    accused = [each for each in suspects if each.row in rows]
    if not accused:
        return set()
    stretch = accused[0].stretch
    levels = row_medians(scene.excess[:, stretch.start : stretch.end])
    with np.errstate(invalid="ignore"):
        shared = levels >= COMPANION_SHARE * min(each.effect for each in accused)
    return {int(row) for row in np.flatnonzero(shared)}


def _is_one_host(rows: set[int], timings: StepTimings, pattern: RankPattern) -> bool:
    """Most ranks of one host out of at least four, in the middle of the job: no stage is there alone by habit."""
    hosts = {timings.places[row].host for row in rows}
    by_host = rows_by_host(timings.places)
    return (
        None not in hosts
        and len(hosts) == 1
        and len(by_host) >= 4
        and all(len(rows) >= MIN_SHARE * len(by_host[host]) for host in hosts if host is not None)
        and not pattern.at_end
    )


def hosts_of(timings: StepTimings, scene: Scene, suspects: tuple[Suspect, ...]) -> tuple[SlowHost, ...]:
    """Slow hosts, unless a gate speaks against one of their ranks that a rank can fail for itself."""
    effects = scene.effects
    if scene.own_time.basis is Basis.WALL_ONLY or np.median(effects.num_steps) < FEW_STEPS:
        return ()
    doubted = {each.row for each in suspects if set(each.failed) & {Gate.WAIT, Gate.PEERS}}
    lasting = [each for each in suspects if each.is_accused and each.pattern is not Pattern.INTERMITTENT]
    found = slow_hosts(
        scene.excess,
        effects.effect,
        timings.places,
        accused=[
            AccusedRank(row=each.row, effect=each.effect, start=each.stretch.start, end=each.stretch.end)
            for each in lasting
        ],
        rank_threshold=scene.threshold.value,
        rank_scale=scene.threshold.scale,
        floor=FLOOR,
        error=family_error(len(scene.ranks)) * HOST_SHARE,
    )
    return tuple(each for each in found if not doubted & set(each.rows))
