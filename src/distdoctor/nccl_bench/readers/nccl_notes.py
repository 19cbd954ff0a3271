"""What the readers of NCCL's lines note down before it becomes facts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from distdoctor.nccl_bench.facts.nccl_log import (
    ChosenAlgorithm,
    CommShape,
    LoggedNic,
    LoggedWarning,
    Override,
    Route,
)
from distdoctor.nccl_bench.readers.nccl_lines import LogLine

# Distinct entries of one kind that are kept; a job of 1000 ranks has some thousand routes. Our own choice.
MAX_DISTINCT = 20_000

# Kinds of warnings that are kept: after so many the first ones still tell what began.
MAX_WARNINGS = 50

RouteKey = tuple[str, str, int | None, int | None, bool, str | None, bool, bool | None]


@dataclass(slots=True, kw_only=True)
class Notes:
    """One log while it is read. Dictionaries keep the order of appearance."""

    origin: str
    values: dict[str, str] = field(default_factory=dict)
    """First text of a kind: version, plugin, provider …"""
    lines: dict[str, int] = field(default_factory=dict)
    """Where the telling lines stand."""
    flags: set[str] = field(default_factory=set)
    most: dict[str, float] = field(default_factory=dict)
    """Highest number of a kind."""
    networks: dict[str, None] = field(default_factory=dict)
    host_networks: dict[str, dict[str, None]] = field(default_factory=dict)
    nics: dict[tuple[str, str], LoggedNic] = field(default_factory=dict)
    gpudirect: dict[str, bool] = field(default_factory=dict)
    plugins_missing: dict[str, None] = field(default_factory=dict)
    comms: dict[tuple[int, int | None, int | None, bool | None], CommShape] = field(default_factory=dict)
    routes: dict[RouteKey, Route] = field(default_factory=dict)
    route_counts: Counter[RouteKey] = field(default_factory=Counter)
    algorithms: dict[tuple[str, int, str, str, str | None], ChosenAlgorithm] = field(default_factory=dict)
    overrides: dict[tuple[str, str], Override] = field(default_factory=dict)
    warnings: dict[str, LoggedWarning] = field(default_factory=dict)
    warning_counts: Counter[str] = field(default_factory=Counter)
    invalid: dict[str, None] = field(default_factory=dict)
    nvls_failures: dict[str, None] = field(default_factory=dict)
    hosts: dict[str, None] = field(default_factory=dict)
    processes: dict[str, None] = field(default_factory=dict)
    devices: dict[str, set[int]] = field(default_factory=dict)
    gpu_models: dict[str, None] = field(default_factory=dict)
    unplaced: set[str] = field(default_factory=set)
    too_far: int = 0
    returned_errors: int = 0
    bootstrap: LoggedNic | None = None

    def where(self, line: LogLine | int) -> str:
        """ "nccl.log:12"."""
        return f"{self.origin}:{line if isinstance(line, int) else line.number}"

    def first(self, what: str, value: str, line: LogLine) -> None:
        """Keep the first value of a kind and its line."""
        self.values.setdefault(what, value)
        self.mark(what, line)

    def mark(self, what: str, line: LogLine) -> None:
        """Keep the first line of a kind."""
        self.lines.setdefault(what, line.number)

    def flag(self, what: str, line: LogLine) -> None:
        """A thing that is so as soon as one line says so."""
        self.flags.add(what)
        self.mark(what, line)

    def highest(self, what: str, value: float, line: LogLine) -> None:
        """Keep the highest number of a kind, and the line that has it."""
        if what not in self.most or value > self.most[what]:
            self.most[what] = value
            self.lines[what] = line.number

    def route(self, route: Route, line: LogLine) -> None:
        """One more line of a route."""
        key = (
            route.transport,
            route.detail,
            route.source,
            route.target,
            route.gpudirect,
            route.device,
            route.pxn,
            route.is_send,
        )
        if key in self.routes or len(self.routes) < MAX_DISTINCT:
            self.routes.setdefault(key, route)
            self.route_counts[key] += 1
        self.mark(f"route {route.transport}", line)
