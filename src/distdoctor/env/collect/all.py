"""All facts of this process and host: what needs no torch at once, the torch child beside it."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distdoctor.env.collect.container import collect_container
from distdoctor.env.collect.gpu import collect_gpus
from distdoctor.env.collect.host import collect_host
from distdoctor.env.collect.interpreter import TIMEOUT_S
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
from distdoctor.env.facts.base import Section, Unread
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.torch import TorchProbe
from distdoctor.errors import DistdoctorError
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


Collector = Callable[[], Section]

EXPECTED_EARLY = frozenset(
    {"variables", "scheduler", "process", "gpus", "kernel_log", "network", "host", "container"}
)
"""Sections that a checkup asks for."""

# Read from this process' own /proc files and variables.
_CANNOT_HANG = frozenset({"variables", "scheduler", "process"})

# The child is killed at its deadline and reaped; this long after it the parent stops waiting for that.
PROBE_MARGIN_S = 5.0


class Collection:
    """One process' facts, step by step: `place`, `software` (both fast), `early` (beside each other), `finish`.

    Splitting them lets the ranks of a host agree on who runs the torch child, and lets the first verdict
    be on screen while torch is still being imported. A collector that fails or hangs costs its own section
    only: the section is None, with the reason in `EnvFacts.unread`.
    """

    def __init__(self, world: World, wanted: Wanted) -> None:
        self._world = world
        self._wanted = wanted
        self._with_host = wanted.host
        self._facts = EnvFacts(host_name=wanted.host_name)
        self._probe: RunningProbe | None = None
        self._lock = threading.Lock()
        self.timings: dict[str, float] = {}

    def place(self) -> EnvFacts:
        """The process itself and its place in the job: variables, limits, launcher."""
        world = self._world
        return self._collect(
            {
                "variables": lambda: collect_variables(world),
                "scheduler": lambda: collect_scheduler(world),
                "process": lambda: collect_process(world),
            }
        )

    def software(self) -> EnvFacts:
        """`place`, and the interpreter and torch by their files: nothing is imported or run for long."""
        self.place()
        # Less than the limit of the step, so that an interpreter that hangs is named, and ended, in time.
        ask_s = min(TIMEOUT_S, 0.6 * self._wanted.timeout_s)
        self._collect({"python": lambda: collect_python(self._world, self._wanted.python, timeout_s=ask_s)})
        python = self._facts.python
        if python is not None:
            self._collect({"torch": lambda: collect_torch(self._world, python)})
        return self._facts

    def start_probe(self) -> None:
        """Start the child that imports torch; it runs beside everything that follows."""
        python = self._facts.python
        if python is None:
            self._put("torch_probe", None, self._facts.unread["python"])
        elif python.executable is not None:
            self._probe = start_torch_probe(python.executable, self._world.environ, self._wanted.timeout_s)

    def want_host(self, wanted: bool) -> None:
        """Whether `early` also collects what is collected once per host."""
        self._with_host = wanted

    def early(self) -> EnvFacts:
        """All facts but those that need torch imported. Host sections only when wanted."""
        world, wanted = self._world, self._wanted
        jobs: dict[str, Collector] = {"nccl": lambda: self._nccl(None)}
        if self._with_host:
            nvml_s = min(wanted.timeout_s, 2 * wanted.tool_timeout_s)
            jobs |= {
                "gpus": lambda: collect_gpus(world, timeout_s=nvml_s),
                "kernel_log": lambda: collect_kernel_log(world, timeout_s=wanted.tool_timeout_s),
                "network": lambda: collect_network(world),
                "host": lambda: collect_host(world),
                "container": lambda: collect_container(world),
            }
        return self._collect(jobs)

    def finish(self) -> EnvFacts:
        """All facts, once the torch child is back or its deadline has passed."""
        probe = self._probe
        if probe is None and "torch_probe" in self._facts.unread:
            return self._facts
        if probe is None:
            why = Unread(
                cause=SkipCause.NOT_ASKED, reason="torch was not imported", how="run without --no-torch"
            )
            self._put("torch_probe", None, why)
            return self._facts
        # The child keeps its own deadline; ours is only for a parent that cannot even wait.
        self._collect({"torch_probe": probe.result}, limit_s=self._wanted.timeout_s + PROBE_MARGIN_S)
        return self._collect({"nccl": lambda: self._nccl(self._facts.torch_probe)})

    def facts_so_far(self) -> EnvFacts:
        """What has been collected by now; sections still missing are named as not having answered in time."""
        with self._lock:
            missing = [
                field.name
                for field in dataclasses.fields(EnvFacts)
                if field.name in EXPECTED_EARLY
                and getattr(self._facts, field.name) is None
                and field.name not in self._facts.unread
            ]
        for name in missing:
            self._put(
                name, None, Unread(cause=SkipCause.TIMED_OUT, reason=f"{name}: no answer within the limit")
            )
        return self._facts

    def _nccl(self, probe: TorchProbe | None) -> NcclFacts:
        return collect_nccl(self._world, self._facts.python, self._facts.torch, probe)

    def _collect(self, jobs: Mapping[str, Collector], limit_s: float | None = None) -> EnvFacts:
        """Run collectors beside each other, each in a thread that is left behind when it does not answer."""
        limit = self._wanted.timeout_s if limit_s is None else limit_s
        threads = {
            name: threading.Thread(target=self._run, args=(name, job), name=name, daemon=True)
            for name, job in jobs.items()
        }
        for name, thread in threads.items():
            try:
                thread.start()
            except RuntimeError:
                self._without_thread(name, jobs[name])
        until = time.monotonic() + limit
        for name, thread in threads.items():
            if thread.ident is None:
                continue
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                why = Unread(cause=SkipCause.TIMED_OUT, reason=f"{name}: no answer within {limit:g} s")
                self._put(name, None, why)
        return self._facts

    def _without_thread(self, name: str, job: Collector) -> None:
        """The limit on processes is reached. What cannot hang is collected all the same."""
        if name in _CANNOT_HANG:
            self._run(name, job)
            return
        why = Unread(
            cause=SkipCause.FAILED,
            reason=f"{name}: the system allows no further thread",
            how="raise the limit on processes: `ulimit -u`, pids.max of the container",
        )
        self._put(name, None, why)

    def _run(self, name: str, job: Collector) -> None:
        began = time.monotonic()
        try:
            section = job()
        except DistdoctorError as error:
            self._put(name, None, Unread(cause=SkipCause.FAILED, reason=error.message, how=error.hint))
        except Exception as error:
            # A machine that nobody foresaw must not cost the rest of the report.
            reason = f"{name}: a bug in distdoctor, {type(error).__name__}: {error}"
            self._put(name, None, Unread(cause=SkipCause.FAILED, reason=reason))
        else:
            self._put(name, section, None)
        self.timings[name] = round(time.monotonic() - began, 4)

    def _put(self, name: str, section: Section | None, why: Unread | None) -> None:
        with self._lock:
            unread = {key: value for key, value in self._facts.unread.items() if key != name}
            if why is not None:
                unread[name] = why
            # The section's type is that of the field of its name.
            self._facts = dataclasses.replace(self._facts, unread=unread, **{name: section})  # type: ignore[arg-type]
