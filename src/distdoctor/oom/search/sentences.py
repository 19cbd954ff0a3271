"""One sentence for the job's owner: what to set, what a rank then needs of which card, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from distdoctor.oom.facts.launch import LaunchConfig
from distdoctor.oom.fit import Fits, need_words
from distdoctor.oom.search.change import Change
from distdoctor.oom.search.costs import Costs, cost_words
from distdoctor.oom.search.proposal import Outcome, Proposal
from distdoctor.oom.search.words_for import lines_for
from distdoctor.units import GIB


def sentence(proposal: Proposal, outcome: Outcome, configs: Sequence[LaunchConfig] = ()) -> str:
    """`In train.toml set activation_checkpoint.mode = "full": each rank needs 25 to 31 GiB of 39.4 instead of 42 to
    52; about a third more computation.`"""
    fit, before = proposal.trial.fit, outcome.start.fit
    needs = f"{need_words(fit.need_low, fit.need_high)} GiB of {outcome.room.usable / GIB:.1f}"
    instead = f"instead of {need_words(before.need_low, before.need_high)}"
    who = who_words(proposal)
    head = what_to_do(proposal, configs)
    verdict = "" if fit.answer is Fits.YES else _not_sure(fit.answer)
    return (
        f"{head}: {who} needs {needs} {instead}{verdict}; {cost_sentence(proposal.costs)}{_layers(proposal)}"
    )


def what_to_do(proposal: Proposal, configs: Sequence[LaunchConfig] = ()) -> str:
    """`In ds.json set "zero_optimization.stage": 3`; a line of code where no file has a key for it."""
    lines, wordless = lines_for(proposal.trial, configs)
    # What no file has a key for is told beside it.
    rest = [change for change in proposal.trial.changes if change.axis in wordless]
    parts = [f"in {PurePath(each.path).name} set {_listed(each.settings)}" for each in lines]
    if rest:
        # Several are told in few words: what comes behind them matters more.
        words = rest[0].text if len(rest) == 1 else short_words(rest)
        parts.append(f"also: {words}" if parts else words)
    text = "; ".join(parts)
    # `tp=4` stays what it is.
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text


def who_words(proposal: Proposal) -> str:
    """`each rank`; under a pipeline `pipeline stage 0 of 4 (embedding)`, which needs most."""
    role = proposal.trial.estimate.worst.role
    return "each rank" if role == "every rank" else role


def cost_sentence(costs: Costs) -> str:
    """The costs, and whether training stays what it is."""
    words = cost_words(costs)
    if costs.keeps_batch and not costs.numerics:
        return f"{words}; same global batch"
    return words


def short_words(changes: Sequence[Change]) -> str:
    """`full checkpointing + chunked loss`."""
    return " + ".join(change.short for change in changes)


def _layers(proposal: Proposal) -> str:
    if proposal.least_layers is None:
        return ""
    least, all_of_them = proposal.least_layers
    return f"; checkpointing {least} of {all_of_them} layers is enough"


def _listed(settings: Sequence[str]) -> str:
    if len(settings) < 2:
        return "".join(settings)
    return f"{', '.join(settings[:-1])} and {settings[-1]}"


def _not_sure(answer: Fits) -> str:
    return ", which is tight" if answer is Fits.TIGHT else ", activations not counted"
