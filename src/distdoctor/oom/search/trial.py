"""A job with some changes made, as an estimate; each combination is estimated once."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.errors import UsageError
from distdoctor.oom.estimate import estimate
from distdoctor.oom.facts.estimate import Estimate
from distdoctor.oom.fit import Fit, Fits
from distdoctor.oom.job import Job
from distdoctor.oom.search.catalog import changes_of
from distdoctor.oom.search.change import Axis, Change, Effort, changed, global_batch_of, spelled_out
from distdoctor.oom.search.host import MAX_HOST_BYTES, host_bytes
from distdoctor.oom.search.room import Room
from distdoctor.oom.search.strategies import scaled
from distdoctor.units import GIB

Key = frozenset[tuple[int, int]]

# Strengths of numbers of GPUs that are no option of their axis.
_BEYOND = 1000

SURELY = frozenset((Fits.YES, Fits.UNKNOWN))
"""It fits; of a job that is not wholly known, what is known of it does."""
PERHAPS = SURELY | {Fits.TIGHT}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One combination."""

    changes: tuple[Change, ...]
    job: Job
    estimate: Estimate
    fit: Fit
    host_bytes: float = 0.0
    """Host memory of one rank."""

    @property
    def key(self) -> Key:
        """Which changes were made, whatever their order."""
        return frozenset(change.key for change in self.changes)

    @property
    def axes(self) -> frozenset[Axis]:
        """What was changed."""
        return frozenset(change.axis for change in self.changes)

    @property
    def effort(self) -> Effort:
        """That of the dearest change."""
        return max((change.effort for change in self.changes), default=Effort.SETTING)

    @property
    def price(self) -> int:
        """Of all changes."""
        return sum(change.price for change in self.changes)


class Trials:
    """Estimates of one job's combinations. `num_made` counts those that were computed."""

    def __init__(
        self,
        job: Job,
        room: Room,
        *,
        without: frozenset[tuple[int, int]] = frozenset(),
        accepts: frozenset[Fits] = SURELY,
    ) -> None:
        self.room = room
        self.accepts = accepts
        self.num_made = 0
        self._without = without
        origin = spelled_out(job)
        self._batch = global_batch_of(origin)
        self._known: dict[Key, Trial | None] = {}
        self.start = self._trial((), origin)

    def options(self, trial: Trial, axis: Axis) -> tuple[Change, ...]:
        """Changes of one axis that `trial` leaves open, the gentlest first."""
        if axis in trial.axes:
            return ()
        return tuple(each for each in changes_of(trial.job, axis) if each.key not in self._without)

    def with_change(self, trial: Trial, change: Change) -> Trial | None:
        """`trial` with one change more; None where the job cannot be."""
        key = trial.key | {change.key}
        if key not in self._known:
            self._known[key] = self._made(trial, change)
        return self._known[key]

    def again(self, wanted: Key) -> Trial | None:
        """The combination of `wanted`, built from the start; None where one of its changes has no place any more."""
        trial = self.start
        for axis in Axis:
            keys = [key for key in wanted if key[0] == axis]
            if not keys:
                continue
            change = next((each for each in self.options(trial, axis) if each.key == keys[0]), None)
            found = self.with_change(trial, change) if change is not None else None
            if found is None:
                return None
            trial = found
        return trial

    def is_goal(self, trial: Trial) -> bool:
        """Whether its answer is one that is looked for; what is known of a job must fit at the most it needs."""
        if trial.fit.answer is Fits.UNKNOWN and trial.changes and Fits.TIGHT not in self.accepts:
            return trial.fit.headroom_low >= 0
        return trial.fit.answer in self.accepts

    def scaled(self, trial: Trial, times: int) -> Trial | None:
        """`trial` on `times` as many GPUs; None where they would share nothing."""
        change = scaled(trial.job, times, strength=_BEYOND + times)
        return self._made(trial, change) if change is not None else None

    def _made(self, trial: Trial, change: Change) -> Trial | None:
        try:
            job = changed(trial.job, change, global_batch=self._batch)
            return self._trial((*trial.changes, change), job)
        except UsageError:
            return None

    def _trial(self, changes: tuple[Change, ...], job: Job) -> Trial:
        self.num_made += 1
        made = estimate(job)
        on_host = host_bytes(job, made)
        if changes and on_host > MAX_HOST_BYTES:
            raise UsageError(f"{on_host / GIB:.0f} GiB of host memory for each rank")
        return Trial(changes=changes, job=job, estimate=made, fit=self.room.fit(made), host_bytes=on_host)
