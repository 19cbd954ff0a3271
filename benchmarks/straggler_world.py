"""Synthetic jobs with and without a slow rank: the definition of what the accuracy of `straggler analyze` is measured on.

A job has ranks on hosts of eight, in pipeline stages of different weight. A rank's own time in a step is

    base x weight of its stage x (1 + rank effect + host effect) x common drift x (1 + noise)

- rank and host effects are constant: the spread between healthy ranks, a third of its variance shared by a host;
- noise has Student's t distribution with 3 degrees of freedom (heavy tails), autocorrelation 0.5, and a fifth of its
  variance is shared by the ranks of a host;
- common drift is one curve for all: a slow wave of 3 %, and steps of 10 % at random (longer batches).

Waiting is what synchronous training makes of it: in each step everybody waits for the slowest of all, and the
transfer takes what it takes. Nothing here knows how the analysis works.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distdoctor.straggler.facts.places import Place
from distdoctor.straggler.facts.sections import Section
from distdoctor.straggler.facts.steps import StepTimings

GPUS_PER_HOST = 8
BASE_MS = 400.0
TRANSFER_MS = 40.0
FORWARD_SHARE = 1 / 3
HOST_SHARE_OF_SPREAD = 1 / 3
HOST_SHARE_OF_NOISE = 1 / 5
AUTOCORRELATION = 0.5
FREEDOM = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One kind of job."""

    num_ranks: int
    num_steps: int = 200
    spread: float = 0.005
    noise: float = 0.02
    stage_weights: tuple[float, ...] = (1.0,)
    """One a pipeline stage; ranks are split evenly, stages outermost."""
    tells_coordinates: bool = True

    @property
    def label(self) -> str:
        """For tables."""
        return f"{self.num_ranks} ranks, noise {self.noise:.0%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A slow rank or host."""

    ranks: tuple[int, ...]
    slowdown: float
    first_step: int = 0
    last_step: int | None = None
    share_of_steps: float = 1.0
    section: Section = Section.BACKWARD


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What the recorder would have written, and the truth."""

    timings: StepTimings
    injected: tuple[Injected, ...] = ()
    accused: tuple[int, ...] = field(default=())


def usual_stages(num_ranks: int) -> tuple[float, ...]:
    """Stages as large jobs have them, the last one heavier (it holds the output head); at least 16 ranks each."""
    num_stages = {64: 4, 512: 8}.get(num_ranks, 16 if num_ranks > 512 else 1)
    return (*(1.0,) * (num_stages - 1), 1.15) if num_stages > 1 else (1.0,)


def make_job(world: World, seed: int, injected: tuple[Injected, ...] = ()) -> Job:
    """One job of this kind, drawn with `seed`."""
    rng = np.random.default_rng(seed)
    own = _own_times(world, rng)
    for each in injected:
        _slow_down(own, each, rng)
    forward = own * np.float32(FORWARD_SHARE)
    backward = own - forward
    wait = own.max(axis=0) - own
    wait += TRANSFER_MS * (1 + 0.03 * np.abs(rng.standard_normal(own.shape, dtype=np.float32)))
    timings = StepTimings(
        source="synthetic",
        places=_places(world),
        steps=np.arange(world.num_steps, dtype=np.int64),
        sections={Section.FORWARD: forward, Section.BACKWARD: backward, Section.WAIT: wait},
        world_size=world.num_ranks,
    )
    return Job(timings=timings, injected=injected)


def _places(world: World) -> tuple[Place, ...]:
    stage_size = world.num_ranks // len(world.stage_weights)
    return tuple(
        Place(
            rank=rank,
            host=f"host-{rank // GPUS_PER_HOST:04d}",
            local_rank=rank % GPUS_PER_HOST,
            coords={"pp": rank // stage_size, "dp": rank % stage_size} if world.tells_coordinates else {},
        )
        for rank in range(world.num_ranks)
    )


def _own_times(world: World, rng: np.random.Generator) -> NDArray[np.float32]:
    n, s = world.num_ranks, world.num_steps
    host = np.arange(n) // GPUS_PER_HOST
    num_hosts = int(host[-1]) + 1
    static = world.spread * (
        np.sqrt(1 - HOST_SHARE_OF_SPREAD) * rng.standard_normal(n)
        + np.sqrt(HOST_SHARE_OF_SPREAD) * rng.standard_normal(num_hosts)[host]
    )
    noise = np.sqrt(1 - HOST_SHARE_OF_NOISE) * _noise(n, s, rng)
    noise += np.sqrt(HOST_SHARE_OF_NOISE) * _noise(num_hosts, s, rng)[host]
    # No step takes less than half the usual time, however heavy the tail.
    factor = np.maximum(1 + np.float32(world.noise) * noise, 0.5)
    wave = 1 + 0.03 * np.sin(2 * np.pi * (np.arange(s) / max(s, 1) + rng.random()))
    longer = 1 + 0.1 * (rng.random(s) < 0.1)
    stages = np.repeat(world.stage_weights, n // len(world.stage_weights))
    own = factor * (BASE_MS * (1 + static) * stages).astype(np.float32)[:, None]
    own *= (wave * longer).astype(np.float32)[None, :]
    return np.asarray(own, dtype=np.float32)


def _noise(rows: int, steps: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Unit variance, t3 innovations, autocorrelation 0.5; shape (rows, steps)."""
    normal = rng.standard_normal((rows, steps), dtype=np.float32)
    chi = rng.standard_gamma(FREEDOM / 2, (rows, steps), dtype=np.float32) * 2
    innovations = normal / np.sqrt(chi / FREEDOM) / np.float32(np.sqrt(FREEDOM / (FREEDOM - 2)))
    scale = np.float32(np.sqrt(1 - AUTOCORRELATION**2))
    values = np.empty_like(innovations)
    values[:, 0] = innovations[:, 0]
    for step in range(1, steps):
        values[:, step] = AUTOCORRELATION * values[:, step - 1] + scale * innovations[:, step]
    return values


def _slow_down(own: NDArray[np.float32], each: Injected, rng: np.random.Generator) -> None:
    stretch = slice(each.first_step, each.last_step)
    for rank in each.ranks:
        hit = rng.random(own[rank, stretch].shape) < each.share_of_steps
        own[rank, stretch] *= np.where(hit, np.float32(1 + each.slowdown), np.float32(1))
