"""Is a path between ranks slow, though all of them come to the collective at once?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.report.assemble import clip_title
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Scope, Severity, Team
from distdoctor.report.names import fold_hosts
from distdoctor.straggler.analysed import Analysed, CollectiveFacts
from distdoctor.straggler.analysis.collectives.links import LinkSuspect
from distdoctor.straggler.checks.base import Found, Outcome, Passed, StragglerCheck, not_seen
from distdoctor.straggler.words import percent, ranks_words
from distdoctor.units import format_bytes


def check_slow_link(facts: Analysed) -> Sequence[Outcome]:
    """A finding for each group whose transfers are slow while its ranks come together."""
    if not facts.collectives:
        return [
            not_seen(
                "no single collectives in the evidence",
                how="record them with NCCL Inspector, or profile some steps on all ranks",
            )
        ]
    outcomes: list[Outcome] = []
    for each in facts.collectives:
        outcomes += _outcomes(each)
    return outcomes


def _outcomes(facts: CollectiveFacts) -> list[Outcome]:
    found: list[Outcome] = [_found(facts, each) for each in facts.links.suspects]
    if found:
        return found
    if facts.links.cannot_tell is not None and not facts.links.compared:
        return [not_seen(facts.links.cannot_tell)]
    return [Passed(detail=f"{facts.links.compared} groups move data at the speed of others of their kind")]


def _found(facts: CollectiveFacts, link: LinkSuspect) -> Found:
    hosts = fold_hosts(link.hosts) if link.hosts else ranks_words(link.ranks)
    return Found(
        key=f"{link.kind}-{'-'.join(link.groups[:4])}",
        title=clip_title(
            f"slow path among {hosts}: {link.op} takes {link.ratio:.1f} times as long as elsewhere"
        ),
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        evidence=(
            Evidence(
                text=f"{link.op} of {format_bytes(link.num_bytes)} and more in group {', '.join(link.groups[:4])} "
                f"({ranks_words(link.ranks)}): {link.transfer_us:.0f} us after all had come, in {link.n} collectives",
                value=round(link.transfer_us, 1),
                unit="us",
                expected=f"{link.peers_us:.0f} us in the {link.num_peers - 1} other groups of its kind",
                expected_source="same operation and size in the same evidence",
                source=facts.source,
            ),
            Evidence(
                text=f"slow in {link.agreeing} of {link.classes} operations and sizes that could be compared; its "
                "ranks come together",
                source=facts.source,
            ),
        ),
        explanation="The time is lost in moving data, after the last rank has come: a link or NIC, not a rank. Which of "
        f"the links is not told by times of the whole group. It is {percent(link.ratio - 1)} more than elsewhere.",
        actions=(
            Action(
                team=Team.NETWORK,
                text=f"look at ports and links of {hosts}: width, speed, error counters",
            ),
            Action(
                team=Team.PLATFORM,
                text="measure pairs of ranks on these hosts",
                command="torchrun … -m distdoctor nccl-bench --matrix all",
            ),
        ),
        scope=Scope(hosts=link.hosts),
        cause_class="slow_link",
        fault=Fault.NETWORK,
    )


CHECK = StragglerCheck(
    id="straggler-slow-link", title="transfers that are slow though all come together", run=check_slow_link
)
