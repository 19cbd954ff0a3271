"""All facts of this process and host: what needs no torch at once, the torch child beside it."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from distdoctor.env.collect.container import collect_container
from distdoctor.env.collect.gpu import collect_gpus
from distdoctor.env.collect.host import collect_host
from distdoctor.env.collect.kernel_log import collect_kernel_log
from distdoctor.env.collect.nccl import collect_nccl
from distdoctor.env.collect.network import collect_network
from distdoctor.env.collect.process import collect_process
from distdoctor.env.collect.python import collect_python
from distdoctor.env.collect.scheduler import collect_scheduler
from distdoctor.env.collect.torch import collect_torch
from distdoctor.env.collect.torch_probe import RunningProbe, start_torch_probe
from distdoctor.env.collect.variables import collect_variables
from distdoctor.env.collect.world import World
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.torch import TorchProbe
from distdoctor.report.model import SkipCause


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to collect.

    python: the interpreter that the job uses; None lets `collect_python` choose.
    timeout_s: the limit of one step (NVML, a tool, the torch child).
    host: also what is collected once per host.
    """

    host_name: str
    python: str | None = None
    timeout_s: float = 60.0
    host: bool = True
    tool_timeout_s: float = 5.0


class Collection:
    """One process' facts, in three steps: `software` (fast), `start` (beside each other), `finish`.

    Splitting them lets the ranks of a host agree on who runs the torch child, and lets the first verdict
    be on screen while torch is still being imported.
    """

    def __init__(self, world: World, wanted: Wanted) -> None:
        self._world = world
        self._wanted = wanted
        self._with_host = wanted.host
        self._facts = EnvFacts(host_name=wanted.host_name)
        self._probe: RunningProbe | None = None
        self.timings: dict[str, float] = {}

    def software(self) -> EnvFacts:
        """Interpreter, torch by its files, variables, place in the job: nothing is imported or run for long."""
        world = self._world
        python = self._timed("python", lambda: collect_python(world, self._wanted.python))
        self._facts = dataclasses.replace(
            self._facts,
            python=python,
            torch=self._timed("torch files", lambda: collect_torch(world, python)),
            variables=self._timed("variables", lambda: collect_variables(world)),
            scheduler=self._timed("scheduler", lambda: collect_scheduler(world)),
            process=self._timed("process", lambda: collect_process(world)),
        )
        return self._facts

    def start_probe(self) -> None:
        """Start the child that imports torch; it runs beside everything that follows."""
        python = self._facts.python
        if python is not None and python.executable is not None:
            self._probe = start_torch_probe(python.executable, self._world.environ, self._wanted.timeout_s)

    def want_host(self, wanted: bool) -> None:
        """Whether `early` also collects what is collected once per host."""
        self._with_host = wanted

    def early(self) -> EnvFacts:
        """All facts but those that need torch imported. Host sections only when wanted."""
        world, wanted = self._world, self._wanted
        jobs: dict[str, Callable[[], Any]] = {}  # Any: each section has its own type
        if self._with_host:
            jobs = {
                "gpus": lambda: collect_gpus(
                    world, timeout_s=min(wanted.timeout_s, 2 * wanted.tool_timeout_s)
                ),
                "kernel_log": lambda: collect_kernel_log(world, timeout_s=wanted.tool_timeout_s),
                "network": lambda: collect_network(world),
                "host": lambda: collect_host(world),
                "container": lambda: collect_container(world),
            }
        with ThreadPoolExecutor(max_workers=len(jobs) or 1) as pool:
            running: dict[str, Future[Any]] = {
                name: pool.submit(self._timed, name, job) for name, job in jobs.items()
            }
            sections = {name: future.result() for name, future in running.items()}
        self._facts = dataclasses.replace(
            self._facts, **sections, nccl=self._timed("nccl", lambda: self._nccl(None))
        )
        return self._facts

    def finish(self) -> EnvFacts:
        """All facts, once the torch child is back or its deadline has passed."""
        if self._probe is None:
            why = Unread(
                cause=SkipCause.NOT_ASKED, reason="torch was not imported", how="run without --no-torch"
            )
            self._facts = dataclasses.replace(self._facts, unread={**self._facts.unread, "torch_probe": why})
            return self._facts
        probe = self._timed("torch import", self._probe.result)
        self._facts = dataclasses.replace(
            self._facts, torch_probe=probe, nccl=self._timed("nccl", lambda: self._nccl(probe))
        )
        return self._facts

    def _nccl(self, probe: TorchProbe | None) -> Any:
        return collect_nccl(self._world, self._facts.python, self._facts.torch, probe)

    def _timed(self, name: str, job: Callable[[], Any]) -> Any:
        began = time.monotonic()
        try:
            return job()
        finally:
            self.timings[name] = round(time.monotonic() - began, 4)
