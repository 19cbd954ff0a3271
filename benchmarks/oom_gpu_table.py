"""Measured beside simulated, as Markdown: allocated and reserved, phases, and what differs for a known reason."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from oom_gpu_messages import Measured, Simulated

from distdoctor.oom.memory.log import Phase
from distdoctor.units import GIB, MIB

NOT_ON_GPU = "not checked on a GPU"

# Differences from here on are listed to be looked at. Our own threshold: the plan's limit is 5 % of allocated.
WORTH_A_LOOK = 0.02
# Smaller phases than this share of the peak decide nothing.
_MIN_PHASE = 0.5


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    name: str
    expandable_segments: bool
    group: str
    is_alone: bool
    measured: Measured
    simulated: Simulated

    @property
    def is_complete(self) -> bool:
        """Both sides are there."""
        return not self.measured.error and not self.simulated.error

    @property
    def expected(self) -> int | None:
        """Allocated by simulation: of the same kernels, and on a GPU with the workspaces that it knows nothing of."""
        native = self.measured.simulated_native
        return native if native is not None else self.simulated.allocated

    @property
    def expected_reserved(self) -> int | None:
        """Reserved by simulation, of the same kind of segments."""
        return (
            self.simulated.reserved_expandable if self.expandable_segments else self.simulated.reserved_fixed
        )


def markdown(found: Sequence[Compared], *, device: str, driver_says: str = "") -> str:
    """All tables."""
    lines = list(_head(found, device, driver_says))
    lines += ["", *_table(_MAIN, (_main_row(each) for each in found))]
    if device == "cuda":
        lines += [
            "",
            "## Phases",
            "",
            "GiB; phases of at least half the peak. Recomputation counts as backward.",
            "",
        ]
        lines += _table(_PHASES, (row for each in found for row in _phase_rows(each)))
        lines += [
            "",
            "## What the simulation does not count",
            "",
            *_table(_BESIDE, (_beside_row(each) for each in found)),
        ]
    lines += ["", "## Simulated", "", *_table(_SIMULATED, (_simulated_row(each) for each in found))]
    listed = list(_to_look_at(found))
    lines += ["", "## To look at", "", *(listed or [f"- nothing is {WORTH_A_LOOK:.0%} or more away"])]
    return "\n".join(lines) + "\n"


def _head(found: Sequence[Compared], device: str, driver_says: str) -> Iterator[str]:
    done = next((each.measured for each in found if each.measured.torch), None)
    yield "# Simulated and measured with real tensors"
    yield ""
    if device != "cuda":
        yield f"**{NOT_ON_GPU}**: a rehearsal on the CPU. Measured is torch's CPU allocator; beside it stands a simulation of"
        yield "the CPU's own kernels. Reserved is simulated only. A real group is Gloo, which allocates for itself."
        yield ""
    yield f"torch {done.torch if done else 'unknown'}, {done.device if done else device}; two steps in a process of its own."
    if driver_says:
        yield f"Before anything was run, nvidia-smi said (name, total, reserved, used, driver): {driver_says}"
    if device == "cuda":
        yield "Off: measured over simulated. Without workspaces: cuBLAS' own memory taken off what was measured."


_MAIN = (
    "job", "group", "allocated GiB", "simulated", "off", "without workspaces",
    "reserved GiB", "simulated", "off", "attention", "RMSNorm", "s",
)  # fmt: skip


def _main_row(each: Compared) -> Sequence[str]:
    measured = each.measured
    if not each.is_complete:
        why = f"measured: {measured.error}" if measured.error else f"simulated: {each.simulated.error}"
        return (each.name, each.group, why, *("" for _ in _MAIN[3:]))
    return (
        each.name,
        each.group,
        _gib(measured.allocated),
        _gib(each.expected),
        _off(measured.allocated, each.expected),
        _off(_less(measured.allocated, measured.workspaces), each.expected),
        _gib(measured.reserved),
        _gib(each.expected_reserved),
        _off(measured.reserved, each.expected_reserved),
        ", ".join(measured.attention) or "-",
        measured.norm,
        f"{measured.seconds:.0f}",
    )


_PHASES = ("job", "step", "phase", "allocated", "simulated", "off", "reserved")


def _phase_rows(each: Compared) -> Iterator[Sequence[str]]:
    if not each.is_complete:
        return
    simulated = phases_of((step, phase, size) for step, phase, size in each.simulated.phases)
    measured = phases_of((one.step, one.phase, one.allocated) for one in each.measured.phases)
    reserved = phases_of((one.step, one.phase, one.reserved) for one in each.measured.phases)
    for key, allocated in measured.items():
        if allocated < _MIN_PHASE * (each.measured.allocated or 0):
            continue
        by_simulation = simulated.get(key)
        yield (
            each.name, str(key[0]), key[1].value, _gib(allocated), _gib(by_simulation),
            _off(allocated, by_simulation), _gib(reserved[key]),
        )  # fmt: skip


def phases_of(peaks: Any) -> dict[tuple[int, Phase], int]:
    """The largest of each phase; a program does not tell when it computes again, which is in its backward pass."""
    found: dict[tuple[int, Phase], int] = {}
    for step, phase, num_bytes in peaks:
        key = (step, Phase.BACKWARD if phase is Phase.RECOMPUTATION else phase)
        found[key] = max(found.get(key, 0), num_bytes)
    return found


_BESIDE = (
    "job", "workspaces of cuBLAS MiB", "rounding MiB", "outside torch at start GiB", "at the end",
    "retries", "allocator's settings",
)  # fmt: skip


def _beside_row(each: Compared) -> Sequence[str]:
    measured = each.measured
    if measured.error:
        return (each.name, measured.error, *("" for _ in _BESIDE[2:]))
    # Of two runs at once the driver counts both.
    alone = each.is_alone
    return (
        each.name,
        _mib(measured.workspaces),
        _mib(_less(measured.allocated, measured.requested)),
        _gib(measured.outside_before) if alone else "not alone",
        _gib(measured.outside_after) if alone else "not alone",
        "-" if measured.num_retries is None else str(measured.num_retries),
        measured.allocator_settings or "-",
    )


_SIMULATED = ("job", "allocated GiB", "fixed segments", "expandable", "peak at", "made of", "layers", "CPU s")


def _simulated_row(each: Compared) -> Sequence[str]:
    told = each.simulated
    if told.error:
        return (each.name, told.error, *("" for _ in _SIMULATED[2:]))
    largest = sorted(told.by_category.items(), key=lambda part: -part[1])[:4]
    made_of = ", ".join(f"{category} {_gib(num_bytes)}" for category, num_bytes in largest)
    return (
        each.name, _gib(told.allocated), _gib(told.reserved_fixed), _gib(told.reserved_expandable),
        told.at, made_of, told.how, f"{told.seconds:g}",
    )  # fmt: skip


def _to_look_at(found: Sequence[Compared]) -> Iterator[str]:
    """Rows and phases that differ, and rows that are missing."""
    for each in found:
        if not each.is_complete:
            yield f"- {each.name}: {each.measured.error or each.simulated.error}"
            continue
        for what, measured, expected in (
            ("allocated", each.measured.allocated, each.expected),
            ("reserved", each.measured.reserved, each.expected_reserved),
        ):
            away = difference(measured, expected)
            if away is not None and abs(away) >= WORTH_A_LOOK:
                yield f"- {each.name}: {what} {_gib(measured)} GiB, simulated {_gib(expected)} ({away:+.1%})"


def difference(measured: int | None, expected: int | None) -> float | None:
    """By how much of what was expected the measured is larger; None where either is not known."""
    if measured is None or not expected:
        return None
    return measured / expected - 1


def _off(measured: int | None, expected: int | None) -> str:
    away = difference(measured, expected)
    return "-" if away is None else f"{away:+.2%}"


def _less(whole: int | None, part: int | None) -> int | None:
    return None if whole is None or part is None else whole - part


def _gib(num_bytes: float | None) -> str:
    if num_bytes is None:
        return "-"
    value = num_bytes / GIB
    return f"{value:.3f}" if value >= 0.1 else f"{value:.5f}"


def _mib(num_bytes: float | None) -> str:
    return "-" if num_bytes is None else f"{num_bytes / MIB:.1f}"


def _table(head: Sequence[str], rows: Any) -> list[str]:
    body = [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows]
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}", *body]
