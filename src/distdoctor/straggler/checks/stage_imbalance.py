"""Does one pipeline stage have more work than the others on every replica? That is the model's cut, no slow machine."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.straggler.analysed import Analysed, Judged
from distdoctor.straggler.analysis.ranks.own_time import Basis
from distdoctor.straggler.analysis.ranks.stages import HeavyGroup
from distdoctor.straggler.checks.base import Found, NotApplicable, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.checks.unjudged import tell_mesh, why_not_judged
from distdoctor.straggler.words import ms, percent, ranks_words

# A stage that is heavier by this much costs more than uneven layers have to. Below it: to know. Our own threshold;
# one layer of thirty-two more is 3 %, an output head of a large vocabulary 10 to 20 %.
WARN_HEAVIER = 0.25

_NAMES = {
    "pp": "pipeline stage",
    "ep": "expert-parallel rank",
    "cp": "context-parallel rank",
    "tp": "tensor-parallel rank",
}


def check_stage_imbalance(facts: Analysed) -> Sequence[Outcome]:
    """A finding for each heavy coordinate; nobody is named in its scope."""
    if not facts.judged:
        reason, how = why_not_judged(facts)
        return [not_seen(reason, how=how)]
    outcomes: list[Outcome] = []
    for judged in facts.judged:
        outcomes += _outcomes(judged)
    return outcomes


def _outcomes(judged: Judged) -> list[Outcome]:
    judgement = judged.judgement
    if not judgement.peers.known:
        return [
            not_seen(
                "the evidence tells no parallel coordinates",
                how=tell_mesh(judged),
            )
        ]
    if judgement.basis in (Basis.WALL_ONLY, Basis.WAIT_ONLY):
        return [not_seen("own times are not in the evidence, so that the work of stages cannot be compared")]
    if judgement.peers.num_groups < 2:
        return [NotApplicable(detail="all ranks do the same work (data parallel)")]
    found: list[Outcome] = [_found(judged, each) for each in judgement.heavy]
    if found:
        return found
    return [
        Passed(detail=f"none of {judgement.peers.num_groups} kinds of ranks has 5 % more work as a whole")
    ]


def _found(judged: Judged, heavy: HeavyGroup) -> Found:
    ranks = [judged.timings.places[row].rank for row in heavy.rows]
    name = _NAMES.get(heavy.dimension, f"coordinate {heavy.dimension} =")
    position = " (the last)" if heavy.is_last and heavy.dimension == "pp" else ""
    why = (
        "The last stage also holds the output head and the loss, the first one the embedding: with layers cut evenly "
        "they have more to do."
        if heavy.dimension == "pp"
        else "Its part of the model or of the sequence holds more work than the others'."
    )
    if len(ranks) == 1:
        return _one_rank(judged, heavy, name=f"{name} {heavy.coordinate}{position}")
    return Found(
        key=f"{judged.label}{heavy.dimension}-{heavy.coordinate}",
        title=judged.titled(
            f"{name} {heavy.coordinate}{position} has {percent(heavy.heavier)} more work than the others"
        ),
        severity=Severity.WARNING if heavy.heavier >= WARN_HEAVIER else Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=(
            Evidence(
                text=f"own work of {name} {heavy.coordinate} ({ranks_words(ranks)}): {ms(heavy.own_ms)} a "
                f"{judged.unit}, the median of the others {ms(heavy.typical_ms)}",
                value=round(100 * heavy.heavier, 2),
                unit="%",
                source=judged.source,
            ),
            Evidence(
                text=f"its {len(ranks)} ranks agree within {percent(heavy.alike)}: "
                "it is the same on every replica",
                source=judged.source,
            ),
        ),
        explanation=f"All of its ranks take longer, so no single machine is at fault: the model is cut unevenly. {why} "
        "A pipeline runs at the speed of its heaviest stage.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="give this stage fewer layers (Megatron-LM: --decoder-last-pipeline-num-layers; TorchTitan: "
                "module_fqns_per_model_part), or more virtual stages",
            ),
        ),
        cause_class="stage_imbalance",
        fault=Fault.CONFIG,
    )


def _one_rank(judged: Judged, heavy: HeavyGroup, *, name: str) -> Found:
    """A stage of a single rank: a heavy stage and a slow machine look the same."""
    rank = judged.timings.places[heavy.rows[0]].rank
    return Found(
        key=f"{judged.label}{heavy.dimension}-{heavy.coordinate}",
        title=judged.titled(f"{name} takes {percent(heavy.heavier)} longer than the others"),
        severity=Severity.INFO,
        confidence=Confidence.LOW,
        evidence=(
            Evidence(
                text=f"own work of {name} (rank {rank} alone): {ms(heavy.own_ms)} a {judged.unit}, the median of the "
                f"others {ms(heavy.typical_ms)}",
                value=round(100 * heavy.heavier, 2),
                unit="%",
                source=judged.source,
            ),
        ),
        explanation="It has one rank only, so it cannot be told whether the stage has more work or the rank is slow.",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text="put the stage on another host: if the time stays with the stage, the model is cut unevenly",
            ),
        ),
        cause_class="stage_imbalance",
        fault=Fault.UNKNOWN,
    )


CHECK = StragglerCheck(
    id="straggler-stage-imbalance",
    title="pipeline stages of different weight",
    run=check_stage_imbalance,
)
