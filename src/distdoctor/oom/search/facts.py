"""From settings, a card and a failure to what the report is about."""

from __future__ import annotations

from distdoctor.errors import UsageError
from distdoctor.oom.catalog.gpus import Cluster
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.fitting import FitFacts
from distdoctor.oom.facts.launch import LaunchConfig
from distdoctor.oom.failed import Failure
from distdoctor.oom.fit import Fits
from distdoctor.oom.job import resolve
from distdoctor.oom.search.card import cluster_of, measured_of, room_of
from distdoctor.oom.search.confirm import Confirm
from distdoctor.oom.search.limits import Limit, Limited, confirmed_limit, find_limit
from distdoctor.oom.search.proposal import Outcome
from distdoctor.oom.search.search import search
from distdoctor.oom.search.trial import Trials
from distdoctor.oom.search.words_for import without_words
from distdoctor.oom.settings import Settings


def facts_of(
    settings: Settings,
    cluster: Cluster | None,
    *,
    failure: Failure | None = None,
    limited: Limited | None = None,
    configs: tuple[LaunchConfig, ...] = (),
    doubts: tuple[str, ...] = (),
    confirm: Confirm | None = None,
) -> FitFacts:
    """A search where a model is known; else what the failure alone tells. The card is that of `cluster`, or of the
    failure. Raises UsageError where neither a model nor a failure is known, or no card."""
    if cluster is None and failure is not None:
        cluster = cluster_of(failure)
    if settings.model is None and failure is not None:
        return FitFacts(cluster=cluster, failure=failure)
    return facts_of_job(
        settings, cluster, failure=failure, limited=limited, configs=configs, doubts=doubts, confirm=confirm
    )


def facts_of_job(
    settings: Settings,
    cluster: Cluster | None,
    *,
    failure: Failure | None = None,
    limited: Limited | None = None,
    configs: tuple[LaunchConfig, ...] = (),
    doubts: tuple[str, ...] = (),
    confirm: Confirm | None = None,
) -> FitFacts:
    """The search of one job, or the limit that was asked for. Raises UsageError for settings that cannot be."""
    job = resolve(settings)
    if cluster is None:
        raise UsageError("which GPUs?", hint="give --on 8xh100-80gb, or a size: --on 8x24GiB")
    now = estimate(job)
    room = room_of(cluster, now, failure)
    if limited is not None:
        outcome = Outcome(start=Trials(job, room).start, room=room)
        asked: tuple[Limited, ...] = (limited,)
    else:
        outcome = search(
            job, room, without=without_words(configs), confirm=confirm, has_failed=failure is not None
        )
        asked = tuple(Limited) if outcome.start.fit.answer is Fits.YES else ()
    limits = _known([find_limit(job, room, what) for what in asked])
    if limited is not None and confirm is not None:
        limits = tuple(confirmed_limit(job, room, each, confirm) for each in limits)
    return FitFacts(
        cluster=cluster,
        job=job,
        outcome=outcome,
        failure=failure,
        measured=measured_of(now, failure) if failure is not None else None,
        limited=limited,
        limits=limits,
        configs=configs,
        doubts=doubts,
        was_simulated=confirm is not None and bool(outcome.proposals),
    )


def _known(limits: list[Limit | None]) -> tuple[Limit, ...]:
    return tuple(each for each in limits if each is not None)
