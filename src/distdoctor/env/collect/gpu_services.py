"""Services beside the driver: fabric manager, IMEX, persistence daemon."""

from __future__ import annotations

import re

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.report.model import SkipCause

FABRIC_UNIT = "nvidia-fabricmanager"

# Lines of the unit's log that are read for the reason of a failure.
_LOG_LINES = "30"

# journalctl and nv-fabricmanager word failures like this; the rest is noise for us.
_TELLS_WHY = re.compile(r"error|fail|NV_\w+|version|mismatch", re.IGNORECASE)


def read_fabric_manager(world: World, reading: Reading, *, timeout_s: float) -> None:
    """`fabric_manager`, and when it is not active `fabric_manager_error`; its version where it is installed."""
    source = f"systemctl show {FABRIC_UNIT}"
    state = reading.take("fabric_manager", source, lambda: _unit_state(world, timeout_s))
    if state in (None, "not installed"):
        return
    reading.take(
        "fabric_manager_version", "nv-fabricmanager --version", lambda: _fabric_version(world, timeout_s)
    )
    if state != "active":
        reading.take(
            "fabric_manager_error", f"journalctl -u {FABRIC_UNIT}", lambda: _why_failed(world, timeout_s)
        )


def _unit_state(world: World, timeout_s: float) -> str:
    argv = ["systemctl", "show", "-p", "LoadState,ActiveState,SubState", FABRIC_UNIT]
    result = world.run_tool(argv, timeout_s=timeout_s)
    values = dict(line.split("=", 1) for line in result.stdout.splitlines() if "=" in line)
    if result.returncode != 0 or "ActiveState" not in values:
        # "System has not been booted with systemd as init system": a container.
        first = (result.stderr or result.stdout).strip().partition("\n")[0][:200]
        raise UnreadError(SkipCause.IN_CONTAINER, f"systemctl: {first or 'no answer'}")
    if values.get("LoadState") == "not-found":
        return "not installed"
    return values["ActiveState"]


def _fabric_version(world: World, timeout_s: float) -> str:
    printed = world.run_tool(["nv-fabricmanager", "--version"], timeout_s=timeout_s).stdout
    match = re.search(r"\d{3,}\.\d+(?:\.\d+)?", printed)
    if match is None:
        raise UnreadError(SkipCause.FAILED, f"no version in `{printed.strip()[:120]}`")
    return match.group()


def _why_failed(world: World, timeout_s: float) -> str:
    argv = ["journalctl", "-u", FABRIC_UNIT, "-n", _LOG_LINES, "--no-pager", "-o", "cat"]
    printed = world.run_tool(argv, timeout_s=timeout_s).stdout
    telling = [line.strip() for line in printed.splitlines() if _TELLS_WHY.search(line)]
    named = [line for line in telling if "NV_" in line] or telling
    if not named:
        raise UnreadError(SkipCause.NEEDS_ROOT, "its log shows no reason", how="run as root")
    return named[-1][:300]


def read_imex(world: World, reading: Reading, *, timeout_s: float) -> None:
    """`imex_state`: the domain's state. Only machines with NVLink between hosts have the tool."""
    reading.take("imex_state", "nvidia-imex-ctl -N", lambda: _imex_domain(world, timeout_s))


def _imex_domain(world: World, timeout_s: float) -> str:
    if world.find_tool("nvidia-imex-ctl") is None:
        return "not installed"
    result = world.run_tool(["nvidia-imex-ctl", "-N"], timeout_s=timeout_s)
    match = re.search(r"Domain State:\s*(\w+)", result.stdout)
    if match is None:
        first = (result.stderr or result.stdout).strip().partition("\n")[0][:200]
        raise UnreadError(SkipCause.FAILED, f"nvidia-imex-ctl: {first or 'no domain state'}")
    return match.group(1).upper()


def read_persistenced(world: World, reading: Reading) -> None:
    """`persistenced_running`, by the daemon's socket."""
    socket = "/run/nvidia-persistenced/socket"
    reading.put("persistenced_running", socket, world.exists(socket))
