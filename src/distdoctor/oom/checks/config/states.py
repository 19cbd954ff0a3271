"""What these configurations come to in memory, where they say enough for an estimate."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import GpuType, gpu_type
from distdoctor.oom.checks.config.base import ConfigCheck, no_configuration, not_said
from distdoctor.oom.checks.estimate.base import SOURCE, gib
from distdoctor.oom.estimate import estimate
from distdoctor.oom.estimate_tables import states_bytes
from distdoctor.oom.facts.launch import ConfigFacts
from distdoctor.oom.fit import Fits, fit_of, need_words
from distdoctor.oom.job import resolve
from distdoctor.report.checking import Found, Outcome, Passed
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Where no file names the GPU: what does not fit this one needs one of the newest. Our own choice.
USUAL_GPU = "h100-80gb"


def _strategy_follows(facts: ConfigFacts) -> bool:
    """Whether the strategy only follows from keys that are missing."""
    saying = [each for each in facts.configs if each.settings.strategy is not None]
    return bool(saying) and all("strategy" in each.implied for each in saying)


_BESIDE = {
    Fits.YES: "",
    Fits.TIGHT: ", which is tight",
    Fits.NO: ", and the length of sequences is assumed",
}


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    if missing := no_configuration(facts):
        return missing
    if facts.joined.strategy is None and (unopened := facts.unopened()):
        named = ", ".join(unopened[:3])
        return [
            not_said(
                f"no estimate: the strategy is in {named}, which was not given", how="give it as another file"
            )
        ]
    if facts.joined.world_size is None and _strategy_follows(facts):
        return [
            not_said(
                "no estimate: plain copies would follow from what no file says; the launcher's file may shard",
                how="give the launcher's file too (accelerate, DeepSpeed), or `--strategy` and `--gpus N`",
            )
        ]
    if facts.joined.strategy is None and facts.joined.world_size is None:
        return [
            not_said(
                "no estimate: no file says on how many GPUs, or by which strategy",
                how="give `--on 8xTYPE` or `--gpus N`, or the launcher's file too",
            )
        ]
    try:
        found = estimate(resolve(facts.joined))
    except UsageError as error:
        return [not_said(f"no estimate: {error.message}", how=error.hint or "")]
    low, high = found.need_bytes
    gpu, is_said = _gpu(facts)
    fit = fit_of(found, gpu)
    held = states_bytes(found.worst)
    needed = f"{need_words(low, high)} GiB" if found.is_whole else f"at least {gib(low)}"
    # What is left open is assumed: it is no ground to say that a job does not fit, unless its states alone do not.
    is_guess = held <= gpu.total_bytes and (not is_said or facts.joined.seq_len is None)
    if fit.answer is not Fits.NO or is_guess:
        has = f"{gpu.name} has {gib(gpu.total_bytes)}"
        beside = f"{has}{_BESIDE[fit.answer]}" if is_said else "no file names it"
        return [
            Passed(
                detail=f"estimated to need {needed} on each GPU ({beside}), {gib(held)} of them model states"
            )
        ]
    return [
        Found(
            title=f"estimated to need {needed} on each GPU: more than {gpu.name} has",
            evidence=(
                Evidence(
                    text=f"model states alone take {gib(held)} on the worst rank ({found.title}); with activations, "
                    f"context and what the allocator reserves it is {needed}",
                    value=round(low),
                    unit="B",
                    expected=f"at most {gib(gpu.total_bytes)}",
                    expected_source=f"capacity of {gpu.name}"
                    + ("" if is_said else ", taken because no file names the GPU"),
                    source=SOURCE,
                ),
            ),
            explanation=_why(held > gpu.total_bytes, is_said=is_said),
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="see where it goes, and what would make it fit",
                    command=_command(facts, gpu),
                ),
            ),
            severity=Severity.CRITICAL if is_said else Severity.WARNING,
            confidence=Confidence.MEDIUM,
            cause_class="capacity",
            fault=Fault.CONFIG,
        )
    ]


def _command(facts: ConfigFacts, gpu: GpuType) -> str:
    """The estimate over the same files on the same GPUs."""
    files = " ".join(f"--config {shlex.quote(config.path)}" for config in facts.configs)
    ranks = facts.joined.world_size
    return f"distdoctor oom estimate {files} --on {f'{ranks}x' if ranks else ''}{gpu.name} --compare"


def _gpu(facts: ConfigFacts) -> tuple[GpuType, bool]:
    """The GPU that a file or the command line names, and whether one does."""
    if facts.joined.gpu_type is not None:
        try:
            return gpu_type(facts.joined.gpu_type), True
        except UsageError:
            pass  # a node's label that the catalog does not know
    return gpu_type(USUAL_GPU), False


def _why(states_exceed: bool, *, is_said: bool) -> str:
    first = (
        "Parameters, gradients and optimizer states alone are larger than the GPU."
        if states_exceed
        else "Model states fit, activations and the loss do not."
    )
    return first if is_said else f"{first} On a larger GPU, judge it with --on."


CHECK = ConfigCheck(id="oom-config-states", title="estimated memory of this configuration", run=_run)
