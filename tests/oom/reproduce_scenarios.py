"""Whole runs of `oom reproduce` in forked ranks, with a small program of our own in which one rank misbehaves."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

# Imported once, before ranks are forked: a rank of its own would take seconds for them.
import distdoctor.cli.hosts_of_ranks
import distdoctor.cli.oom_reproduce
import distdoctor.cli.oom_reproduce_live
import distdoctor.oom.checks.reproduce.all
import distdoctor.oom.reproduction.rank.run
import distdoctor.oom.tracking.tracker  # noqa: F401
from distdoctor.__main__ import main
from distdoctor.oom.facts.estimate import Category
from distdoctor.oom.memory.log import Phase
from distdoctor.oom.training import build
from distdoctor.oom.training.base import CannotRunError, Observer, Program, World
from distdoctor.ranks.group import joining

WIDTH = 256
GREEDY_BYTES = 64 << 20


class SmallProgram(Program):
    """A few layers, whose gradients are added up over all ranks."""

    def __init__(self, world: World, observer: Observer, fault: str, at_step: int) -> None:
        self._rank = world.rank
        self._fault = fault
        self._at_step = at_step
        observer.at(Phase.INITIALISATION, step=0)
        self._model = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)))
        observer.name_modules(self._model)
        observer.label(self._model.parameters(), Category.PARAMETERS)
        self._optimizer = torch.optim.AdamW(self._model.parameters())

    def step(self, number: int, observer: Observer) -> float | None:
        observer.at(Phase.FORWARD, step=number, micro_batch=0)
        loss = self._model(torch.ones(8, WIDTH)).square().mean()
        if number == self._at_step:
            misbehave(self._fault)
        observer.at(Phase.BACKWARD, step=number, micro_batch=0)
        loss.backward()
        for parameter in self._model.parameters():
            dist.all_reduce(parameter.grad)
        observer.label(
            [each.grad for each in self._model.parameters() if each.grad is not None], Category.GRADIENTS
        )
        observer.at(Phase.OPTIMIZER_STEP, step=number)
        self._optimizer.step()
        states = [each for state in self._optimizer.state.values() for each in state.values()]
        observer.label(states, Category.OPTIMIZER)
        self._optimizer.zero_grad()
        return float(loss.detach())

    def parameters(self) -> Iterable[nn.Parameter]:
        return self._model.parameters()

    def close(self) -> None:
        """Nothing was opened."""


# Into the second layer of the model, between two collectives.
CALLS_BEFORE_FAILING = 9


class Failing:
    """A linear layer of torch that raises after some calls."""

    calls_left = 0
    real_forward = nn.Linear.forward

    def forward(self: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        if Failing.calls_left:
            Failing.calls_left -= 1
            if not Failing.calls_left:
                misbehave("raise")
        return Failing.real_forward(self, x)


def misbehave(fault: str) -> None:
    match fault:
        case "greedy":
            torch.zeros(GREEDY_BYTES, dtype=torch.uint8)
        case "raise":
            raise ValueError("this layer does not exist")
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "hang":
            time.sleep(600)


def reproduce(
    rank: int,
    world_size: int,
    argv: list[str],
    faults: dict[str, str],
    strategies: list[str] | None = None,
    at_step: int = 2,
    join_timeout_s: float | None = None,
    never_comes_s: float | None = None,
    argv_of: dict[str, list[str]] | None = None,
    stderr: str | None = None,
) -> int:
    """Run the command; `faults` maps a rank to what its program does in `at_step` of `strategies`, or of all.

    `argv_of`: more words for some ranks. `stderr`: a file for what rank 0 says there.
    """
    del world_size
    fault = faults.get(str(rank), "")
    if join_timeout_s is not None:
        joining.JOIN_TIMEOUT_S = join_timeout_s
    if fault == "never comes":
        # Longer than the others wait.
        time.sleep(never_comes_s or 5 * joining.JOIN_TIMEOUT_S)
        return 0

    def small_program(world: World, observer: Observer) -> Program:
        if fault == "cannot":
            raise CannotRunError("this torch has no such thing")
        hit = strategies is None or world.job.strategy.value in strategies
        return SmallProgram(world, observer, fault if hit else "", at_step)

    real_program = build.build_program

    def failing_program(world: World, observer: Observer) -> Program:
        kind = "cp" if world.job.mesh.cp > 1 else world.job.strategy.value
        if fault and kind in (strategies or ()):
            Failing.calls_left = CALLS_BEFORE_FAILING
        return real_program(world, observer)

    build.build_program = failing_program if argv[0] == "real" else small_program
    if argv[0] == "real" and fault:
        nn.Linear.forward = Failing.forward
    more = (argv_of or {}).get(str(rank), [])
    sys.argv = ["distdoctor", "oom", "reproduce", "--model", "tiny", *argv[1:], *more]
    if stderr is not None and rank == 0:
        sys.stderr = Path(stderr).open("w", buffering=1, encoding="utf-8")  # noqa: SIM115 - open for as long as the rank lives
    try:
        return int(main() or 0)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
