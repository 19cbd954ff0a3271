"""Did a rank run out of memory, and where was its program then?"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdoctor.oom.checks.reproduce.base import TRACKER, ReproduceCheck, categories_words, scope_of, who
from distdoctor.oom.facts.reproduced import Outcome, OutOfMemory, RankPart, Reproduced, ReproduceFacts
from distdoctor.report.assemble import clip_title
from distdoctor.report.checking import Found, NotApplicable, NotSeen, Passed, Unread
from distdoctor.report.checking import Outcome as CheckOutcome
from distdoctor.report.model import Action, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import fold_ints, format_bytes

# Groups of ranks that get lines of their own. Our own bound.
_MAX_SHOWN = 4


def _run(facts: ReproduceFacts) -> Sequence[CheckOutcome]:
    begun = [each for each in facts.combinations if not each.not_begun]
    found = [_found(facts, each) for each in begun if each.outcome is Outcome.OUT_OF_MEMORY]
    if found:
        return found
    done = [each for each in begun if each.outcome is Outcome.DONE]
    if done:
        names = ", ".join(each.name for each in done)
        return [Passed(detail=f"ran to its end on every rank: {names}")]
    if begun and all(each.outcome is Outcome.CANNOT_RUN for each in begun):
        return [NotApplicable(detail="nothing that was asked for can run here")]
    reason = "no strategy ran to its end"
    return [NotSeen(unread=Unread(cause=SkipCause.FAILED, reason=reason, how="see what stopped it"))]


def _found(facts: ReproduceFacts, combination: Reproduced) -> Found:
    hit = [part for part in combination.parts if part.outcome is Outcome.OUT_OF_MEMORY]
    ranks = tuple(part.rank for part in hit)
    first = hit[0].out_of_memory or OutOfMemory(
        at=hit[0].at, message=hit[0].error, enforced_by="a source that was not told"
    )
    return Found(
        key=combination.name,
        title=clip_title(f"{who(facts, ranks)} ran out of memory: {combination.name}, {_when(first)}"),
        severity=Severity.CRITICAL,
        evidence=tuple(line for parts in _alike(hit)[:_MAX_SHOWN] for line in _evidence(parts))
        + _others(combination, ranks),
        explanation=_explanation(
            facts, first, several=len(hit) > 1, alone=combination.job.mesh.num_ranks == 1
        ),
        actions=_actions(combination, first),
        scope=scope_of(facts, ranks),
        cause_class="capacity",
        fault=Fault.CONFIG,
    )


def _when(event: OutOfMemory) -> str:
    return f"step {event.at.step}, {event.at.phase}" if event.at.step else event.at.phase


def _evidence(parts: Sequence[RankPart]) -> tuple[Evidence, ...]:
    """Of ranks that met the same at the same place, as one."""
    event = parts[0].out_of_memory
    if event is None:
        return ()
    ranks = fold_ints(tuple(part.rank for part in parts))
    name = f"rank{'s' if len(parts) > 1 else ''} {ranks}"
    requested = event.requested_bytes
    asked = f"asked for {format_bytes(requested)} more" if requested else "got no memory"
    lines = [
        Evidence(
            text=f"{name} {asked}: {event.at.words()}",
            value=requested,
            unit="B" if requested else None,
            expected=f"at most {format_bytes(event.limit_bytes)} in all" if event.limit_bytes else None,
            expected_source="--memory-limit" if event.limit_bytes else None,
            source=event.enforced_by,
        )
    ]
    if event.live_bytes is not None:
        live = f"{format_bytes(event.live_bytes)} were live: {categories_words(event.by_category)}"
        lines.append(Evidence(text=f"{name}: {live}", value=event.live_bytes, unit="B", source=TRACKER))
    lines += _snapshots(parts)
    return tuple(lines)


def _snapshots(parts: Sequence[RankPart]) -> list[Evidence]:
    """What ranks left, or why they did not."""
    left = [(part.rank, event.snapshot) for part in parts if (event := part.out_of_memory) and event.snapshot]
    failed = [
        (part.rank, event.no_snapshot)
        for part in parts
        if (event := part.out_of_memory) and event.no_snapshot
    ]
    lines = []
    for rank, path in left[:1]:
        more = fold_ints([each for each, _ in left[1:]])
        others = f"; so did rank{'s' if len(left) > 2 else ''} {more}" if more else ""
        lines.append(Evidence(text=f"rank {rank} left {path}{others}", source="the rank that wrote it"))
    for rank, why in failed[:1]:
        lines.append(Evidence(text=f"rank {rank} left no snapshot: {why}", source="its host"))
    return lines


def _alike(hit: Sequence[RankPart]) -> list[list[RankPart]]:
    """Ranks that asked for as much, at the same place, with as much live."""
    groups: dict[object, list[RankPart]] = {}
    for part in hit:
        event = part.out_of_memory
        key = (event.at, event.requested_bytes, event.live_bytes) if event is not None else None
        groups.setdefault(key, []).append(part)
    return list(groups.values())


def _others(combination: Reproduced, ranks: Sequence[int]) -> tuple[Evidence, ...]:
    """Whoever waited for them."""
    waited = tuple(
        part.rank
        for part in combination.parts
        if part.rank not in ranks and part.outcome in (Outcome.UNFINISHED, Outcome.FAILED)
    )
    if not waited:
        return ()
    text = f"rank{'s' if len(waited) > 1 else ''} {fold_ints(waited)} waited for it in a collective, and were ended"
    return (Evidence(text=text, source="what each rank told of its end"),)


def _explanation(facts: ReproduceFacts, event: OutOfMemory, *, several: bool, alone: bool) -> str:
    if several:
        words = "All these ranks met the limit at about the same place."
    elif alone:
        words = "One rank ran, so that there is no other to compare it with."
    else:
        words = "The others had room; a rank that holds more than its peers is the one to look at."
    if facts.memory_limit_bytes is not None:
        limit = format_bytes(facts.memory_limit_bytes)
        words += f" The limit of {limit} was asked for; refused by {event.enforced_by}."
    return words


def _actions(combination: Reproduced, event: OutOfMemory) -> tuple[Action, ...]:
    job = combination.job
    actions = [
        Action(
            team=Team.JOB_OWNER,
            text="what each strategy would need with this model and batch, by formula",
            command=f"distdoctor oom estimate --model {shlex.quote(job.model.name)} --gpus {job.mesh.num_ranks} "
            f"--micro-batch {job.micro_batch} --seq-len {job.seq_len} --compare",
        )
    ]
    if event.snapshot is None:
        actions.append(
            Action(team=Team.JOB_OWNER, text="again with `--snapshot DIR`, to keep what each rank held")
        )
    elif event.snapshot.endswith(".pickle"):
        actions.insert(
            0,
            Action(
                team=Team.JOB_OWNER,
                text="what held the memory, with stacks",
                command=f"distdoctor oom explain {shlex.quote(event.snapshot)}",
            ),
        )
    return tuple(actions)


CHECK = ReproduceCheck(
    id="oom-reproduced-out-of-memory", title="memory of each rank while it trained", run=_run, essential=True
)
