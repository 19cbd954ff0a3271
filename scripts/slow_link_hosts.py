#!/usr/bin/env python3
"""Several hosts on one Linux machine, one of them or one way between two made slow: does nccl-bench name it?

    sudo python scripts/slow_link_hosts.py OUT                              # four hosts without a fault
    sudo python scripts/slow_link_hosts.py OUT --slow-host 2 --rate 200mbit # all that host-2 sends
    sudo python scripts/slow_link_hosts.py OUT --slow-link 1:3              # what host-1 sends to host-3
    sudo python scripts/slow_link_hosts.py OUT --all                        # all of these, three controls, two ranks a host

A host is a network namespace with a hostname and one interface, joined to the others by a bridge in a namespace of
its own: the machine's own network is not touched. Ranks speak Gloo over it and are started by RANK and WORLD_SIZE,
so that rank 0 serves the store. Hosts share CPUs, memory and a kernel: what is slow here is slow by `tc` alone.

Writes the reports and what each rank said on stderr below OUT, and prints who was named. Exit code: 0 when that
was right in every scenario, 1 when it was not, 2 when this machine cannot do it. What follows `--` is given to
nccl-bench.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

SUBNET = "10.79.0"
PORT = 29577

# Beyond nccl-bench's own time limit: torch is imported by all ranks on a few cores, and a report is written.
GRACE_S = 60.0

COMMAND_TIMEOUT_S = 10.0

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

# A small queue behind the limit, so that a slow sender waits and nothing is lost. What is sent at once (burst) holds
# one segment as TCP hands it down.
TBF = ("burst", "64kb", "latency", "50ms")


class SetupError(Exception):
    """This machine cannot make hosts; the message is one line."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Hosts, and what is slow about them."""

    name: str
    num_hosts: int = 4
    ranks_per_host: int = 1
    slow_host: int | None = None
    slow_link: tuple[int, int] | None = None
    rate: str = "200mbit"

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return self.num_hosts * self.ranks_per_host

    @property
    def culprit(self) -> str:
        """Who must be named, in the words of `Finding.name`."""
        if self.slow_host is not None and self.num_hosts == 2:
            # Which of two ends it is, only a third host tells.
            return f"host-{self.slow_host} -> host-{1 - self.slow_host}"
        if self.slow_host is not None:
            return f"host-{self.slow_host} sends"
        if self.slow_link is not None:
            return f"host-{self.slow_link[0]} -> host-{self.slow_link[1]}"
        return ""


def all_scenarios(asked: Scenario) -> tuple[Scenario, ...]:
    """A slow host, a slow link, three controls, and a slow host again whose hosts have two ranks."""
    slow_host = replace(asked, name="slow-host", slow_host=2, slow_link=None)
    return (
        slow_host,
        replace(asked, name="slow-link", slow_host=None, slow_link=(1, 3)),
        *(replace(asked, name=f"control-{n}", slow_host=None, slow_link=None) for n in (1, 2, 3)),
        replace(slow_host, name="slow-host-2-ranks", ranks_per_host=2),
    )


# --- hosts ---


@contextmanager
def hosts(scenario: Scenario) -> Iterator[list[str]]:
    """The namespaces of the hosts, by number; gone at the end, and their interfaces with them."""
    mine = f"slowlink-{os.getpid()}"
    switch, names = f"{mine}-switch", [f"{mine}-host-{i}" for i in range(scenario.num_hosts)]
    made: list[str] = []
    try:
        for name in (switch, *names):
            made.append(name)
            tool("ip", "netns", "add", name)
        tool("ip", "-n", switch, "link", "add", "br0", "type", "bridge")
        tool("ip", "-n", switch, "link", "set", "br0", "up")
        for number, name in enumerate(names):
            port = f"port{number}"
            tool(
                "ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name
            )
            tool("ip", "-n", switch, "link", "set", port, "master", "br0", "up")
            tool("ip", "-n", name, "address", "add", f"{address(number)}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                tool("ip", "-n", name, "link", "set", interface, "up")
        slow_down(scenario, names)
        yield names
    finally:
        for name in made:
            with suppress(SetupError):
                tool("ip", "netns", "delete", name)


def address(host: int) -> str:
    """IP address of a host."""
    return f"{SUBNET}.{host + 1}"


def slow_down(scenario: Scenario, names: Sequence[str]) -> None:
    """Limit what one host sends, to all or to one other host."""
    if scenario.slow_host is not None:
        qdisc = ("tc", "-n", names[scenario.slow_host], "qdisc", "add", "dev", "eth0", "root")
        tool(*qdisc, "tbf", "rate", scenario.rate, *TBF)
    if scenario.slow_link is not None:
        source, target = scenario.slow_link
        tc = ("tc", "-n", names[source])
        # What no filter matches is not limited at all: `default 0`.
        tool(*tc, "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "0")
        tool(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:20",
             "htb", "rate", scenario.rate, "burst", "64kb")  # fmt: skip
        to_target = ("match", "ip", "dst", f"{address(target)}/32")
        tool(*tc, "filter", "add", "dev", "eth0", "parent", "1:", "protocol", "ip",
             "u32", *to_target, "flowid", "1:20")  # fmt: skip


def tool(*argv: str) -> None:
    """Run a command of iproute2. Raises SetupError with its last words."""
    try:
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise SetupError(f"`{' '.join(argv)}` does not end within {COMMAND_TIMEOUT_S:g} s") from None
    if ended.returncode:
        words = (ended.stderr.strip() or f"exit code {ended.returncode}").splitlines()[-1]
        raise SetupError(f"`{' '.join(argv)}`: {words}")


def check_machine() -> None:
    """Raises SetupError for what is missing."""
    if not sys.platform.startswith("linux"):
        raise SetupError("network namespaces need Linux")
    missing = [name for name in ("ip", "tc", "unshare") if shutil.which(name) is None]
    if missing:
        raise SetupError(f"not installed: {', '.join(missing)} (packages iproute2 and util-linux)")
    if os.geteuid() != 0:
        raise SetupError("making network namespaces needs root: run it with sudo")


# --- ranks ---


def run_ranks(
    scenario: Scenario, names: Sequence[str], out: Path, bench: Sequence[str], limit_s: float
) -> bool:
    """Run nccl-bench in every host; whether all ranks ended by themselves within the limit."""
    ranks: list[subprocess.Popen[bytes]] = []
    until = time.monotonic() + limit_s
    try:
        for rank in range(scenario.world_size):
            ranks.append(start_rank(scenario, names, rank, out, bench))
        for each in ranks:
            each.wait(timeout=max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        return False
    finally:
        for each in ranks:
            if each.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(each.pid, signal.SIGKILL)
                each.wait()
    return True


def start_rank(
    scenario: Scenario, names: Sequence[str], rank: int, out: Path, bench: Sequence[str]
) -> subprocess.Popen[bytes]:
    """One rank, in its host's namespace and under its name, in a process group of its own."""
    host, local_rank = divmod(rank, scenario.ranks_per_host)
    variables = {
        "RANK": rank,
        "WORLD_SIZE": scenario.world_size,
        "LOCAL_RANK": local_rank,
        "LOCAL_WORLD_SIZE": scenario.ranks_per_host,
        "NODE_RANK": host,
        "MASTER_ADDR": address(0),
        "MASTER_PORT": PORT,
        "GLOO_SOCKET_IFNAME": "eth0",
        "OMP_NUM_THREADS": 1,
    }
    named = 'echo "$0" >/proc/sys/kernel/hostname && exec "$@"'
    with (
        (out / f"rank-{rank}.stdout").open("wb") as stdout,
        (out / f"rank-{rank}.stderr").open("wb") as stderr,
    ):
        return subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                names[host],
                "unshare",
                "--uts",
                "sh",
                "-c",
                named,
                f"host-{host}",
                *bench,
            ],
            env=os.environ | {name: str(value) for name, value in variables.items()},
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )


# --- who was named ---


@dataclass(frozen=True, kw_only=True)
class Row:
    """One scenario, ended."""

    scenario: str
    status: str
    title: str
    named: tuple[str, ...]
    is_right: bool
    seconds: float

    def __str__(self) -> str:
        who = ", ".join(self.named) or "nobody"
        judged = "" if self.is_right else "   <-- wrong"
        return f"{self.scenario:<18} {self.status:<9} {self.seconds:>5.1f}  {who:<22} {self.title}{judged}"


HEADER = f"{'scenario':<18} {'verdict':<9} {'s':>5}  {'named':<22} title"


def run_scenario(scenario: Scenario, out: Path, bench_options: Sequence[str], time_limit_s: float) -> Row:
    """Make the hosts, measure, and read who was named. Raises SetupError."""
    out.mkdir(parents=True, exist_ok=True)
    reports = [f"--output={out / f'report.{suffix}'}" for suffix in ("json", "html", "md", "txt")]
    (out / "report.json").unlink(missing_ok=True)
    bench = [sys.executable, "-m", "distdoctor", "nccl-bench", f"--time-limit={time_limit_s:g}s",
             *bench_options, *reports, "--force"]  # fmt: skip
    with hosts(scenario) as names:
        began = time.monotonic()
        ended = run_ranks(scenario, names, out, bench, time_limit_s + GRACE_S)
        seconds = time.monotonic() - began
    try:
        report = json.loads((out / "report.json").read_bytes())
    except (OSError, ValueError):
        title = f"no report; see {out}/rank-0.stderr" + ("" if ended else ", ranks were killed")
        return Row(scenario=scenario.name, status="-", title=title, named=(), is_right=False, seconds=seconds)
    named = tuple(dict.fromkeys(name for each in report.get("findings", []) for name in names_in(each)))
    return Row(
        scenario=scenario.name,
        status=report["verdict"]["status"],
        title=report["verdict"]["title"],
        named=named,
        is_right=ended and named == ((scenario.culprit,) if scenario.culprit else ()),
        seconds=seconds,
    )


def names_in(finding: dict[str, Any]) -> tuple[str, ...]:
    """Whom a finding about measured numbers accuses: a host and which way, a link, ranks; nobody for all the rest."""
    scope = finding.get("scope", {})
    if finding["severity"] == "info" or not finding["id"].startswith("bench-"):
        return ()
    names, ranks = scope.get("hosts", ()), scope.get("ranks", ())
    if finding["id"] == "bench-slow-link":
        return tuple(link for link in scope["links"] if "->" in link)
    if finding["id"] == "bench-slow-host" and len(names) == 1:
        way = "both ways" if "sends and receives" in finding["title"] else finding["title"].split()[1]
        return (f"{names[0]} {way}",)
    what = finding["id"].removeprefix("bench-")
    if names or ranks:
        return (f"{what}: {'+'.join(names)} ranks {','.join(map(str, ranks))}",)
    return ()


# --- command line ---


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Our options, and nccl-bench's behind `--`."""
    end = argv.index("--") if "--" in argv else len(argv)
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder for reports")
    parser.add_argument("--all", action="store_true", help="slow host, slow link, controls, two ranks a host")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="number of hosts [4]")
    parser.add_argument("--ranks", type=int, default=1, metavar="N", help="ranks of each host [1]")
    parser.add_argument("--slow-host", type=int, metavar="I", help="limit what host I sends")
    parser.add_argument("--slow-link", type=link, metavar="I:J", help="limit what host I sends to host J")
    parser.add_argument("--rate", default="200mbit", help="the limit, in the words of tc [200mbit]")
    parser.add_argument("--time-limit", type=float, default=80.0, metavar="S", help="of each run [80]")
    options = parser.parse_args(argv[:end])
    slow = [host for host in (options.slow_host, *(options.slow_link or ())) if host is not None]
    if options.hosts not in range(2, 65) or options.ranks not in range(1, 17):
        parser.error("from 2 to 64 hosts, with 1 to 16 ranks each")
    if options.slow_host is not None and options.slow_link is not None:
        parser.error("--slow-host and --slow-link exclude one another")
    if options.all and (slow or options.hosts < 4):
        parser.error("--all chooses who is slow, of 4 hosts or more")
    if any(host not in range(options.hosts) for host in slow) or len(slow) != len(set(slow)):
        parser.error(f"no such host: they are 0 to {options.hosts - 1}")
    return options, list(argv[end + 1 :])


def link(text: str) -> tuple[int, int]:
    """Two hosts of "1:3"."""
    source, _, target = text.partition(":")
    return int(source), int(target)


def main() -> int:
    """Run what was asked for; the exit code."""
    options, bench_options = parse(sys.argv[1:])
    for number in ENDING:
        signal.signal(number, interrupt)
    asked = Scenario(
        name="slow-host"
        if options.slow_host is not None
        else "slow-link"
        if options.slow_link
        else "control",
        num_hosts=options.hosts,
        ranks_per_host=options.ranks,
        slow_host=options.slow_host,
        slow_link=options.slow_link,
        rate=options.rate,
    )
    all_right = True
    try:
        check_machine()
        print(HEADER, flush=True)
        for scenario in all_scenarios(asked) if options.all else (asked,):
            out = options.out / scenario.name if options.all else options.out
            row = run_scenario(scenario, out, bench_options, options.time_limit)
            print(row, flush=True)
            all_right &= row.is_right
    except SetupError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("error: interrupted; hosts and ranks are gone", file=sys.stderr)
        return 130
    return 0 if all_right else 1


def interrupt(number: int, frame: FrameType | None) -> None:
    """Leave by way of every `finally`, once: a second Ctrl-C must not end what cleans up."""
    del number, frame
    for each in ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
