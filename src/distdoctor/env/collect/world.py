"""The one place where collectors touch the machine, so that a test can be another machine.

A folder with a `/proc` and `/sys` tree stands for a host, `/proc/PID/root` for a container seen from outside.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distdoctor.bounded_child import RUNNING, kill_group
from distdoctor.env.collect.addresses import addresses_from_proc, own_addresses
from distdoctor.env.collect.resolve import resolve_in_time
from distdoctor.env.facts.base import UnreadError
from distdoctor.env.facts.network import Address
from distdoctor.report.model import SkipCause

# Files under /proc and /sys that we read are far smaller; logs are read by their own reader.
MAX_FILE_BYTES = 4 << 20

READ_PIECE_BYTES = 64 << 10

# Tools are looked up here, never through the caller's PATH: we may run as root from cron.
TOOL_FOLDERS = ("/usr/bin", "/usr/sbin", "/bin", "/sbin", "/usr/local/bin", "/opt/rocm/bin")

TOOL_ENVIRON = {"LC_ALL": "C", "PATH": ":".join(TOOL_FOLDERS)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool printed. `returncode` is negative for a signal."""

    argv: tuple[str, ...]
    returncode: int
    stdout: str
    stderr: str


@dataclass(frozen=True, kw_only=True)
class World:
    """A machine (or container) to read from.

    root: "/" on this machine; a fake tree in tests; `/proc/PID/root` for another mount namespace.
    environ: variables of the process that is asked about.
    pid: whose /proc/<pid> files are read (limits, status, cgroup, maps); "self" for this process.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=dict)
    pid: str = "self"
    tool_folders: tuple[str, ...] = TOOL_FOLDERS

    def path(self, path: str) -> Path:
        """`path` (absolute, as on the machine) below this world's root.

        Under another root a symbolic link's absolute target would lead back to ours, so links are
        followed inside the root, as chroot does.
        """
        if self.root == Path("/"):
            return Path(path)
        return _resolve_inside(self.root, path)

    def read_text(self, path: str) -> str:
        """Text of a small file, undecodable bytes replaced.

        Raises FileNotFoundError, PermissionError, OSError; ValueError above 4 MiB.
        """
        return self.read_bytes(path).decode("utf-8", "replace")

    def read_bytes(self, path: str) -> bytes:
        """Content of a small binary file (PCI configuration space). Raises as `read_text`."""
        data = bytearray()
        # Unbuffered and in small pieces: /proc/sys refuses a read of 4 MiB with "Cannot allocate memory".
        with self.path(path).open("rb", buffering=0) as stream:
            while piece := stream.read(READ_PIECE_BYTES):
                data += piece
                if len(data) > MAX_FILE_BYTES:
                    raise ValueError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB")
        return bytes(data)

    def read_line(self, path: str) -> str:
        """The first line of a small file, stripped. Raises as `read_text`."""
        return self.read_text(path).partition("\n")[0].strip()

    def proc(self, name: str) -> str:
        """Path of a /proc file of the process that is asked about: `proc("limits")`.

        Always below the real /proc of this world's own root when `pid` is "self"; a live process of
        another namespace is read through the host's /proc.
        """
        return f"/proc/{self.pid}/{name}"

    def read_proc(self, name: str) -> str:
        """Text of /proc/<pid>/<name>. Raises as `read_text`."""
        if self.pid == "self" or not str(self.root).startswith("/proc/"):
            return self.read_text(self.proc(name))
        data = Path(self.proc(name)).read_bytes()[: MAX_FILE_BYTES + 1]
        return data.decode("utf-8", "replace")

    def readlink_proc(self, name: str) -> str:
        """Where the link /proc/<pid>/<name> points: `readlink_proc("ns/pid")`. Raises OSError."""
        if self.pid == "self" or not str(self.root).startswith("/proc/"):
            return self.readlink(self.proc(name))
        return os.readlink(self.proc(name))  # noqa: PTH115 - the raw text is the fact

    @property
    def is_this_machine(self) -> bool:
        """True when system calls of ours (uname, adjtimex) speak of this world too: not a copied tree."""
        return self.root == Path("/") or str(self.root).startswith("/proc/")

    def exists(self, path: str) -> bool:
        """True when `path` is there; False also when it may not be looked at."""
        try:
            return self.path(path).exists()
        except OSError:
            return False

    def listdir(self, path: str) -> list[str]:
        """Sorted names in a folder. Raises FileNotFoundError, PermissionError, OSError."""
        return sorted(os.listdir(self.path(path)))  # noqa: PTH208 - names, not paths, are wanted

    def readlink(self, path: str) -> str:
        """Where a symbolic link points. Raises OSError."""
        folder, _, name = path.rstrip("/").rpartition("/")
        return os.readlink(self.path(folder or "/") / name)  # noqa: PTH115 - the raw text is the fact

    def statvfs(self, path: str) -> tuple[int, int]:
        """(total bytes, free bytes) of the file system that holds `path`. Raises OSError."""
        result = os.statvfs(self.path(path))
        return result.f_blocks * result.f_frsize, result.f_bavail * result.f_frsize

    def shares_namespace(self, kind: str) -> bool:
        """True when the process asked about is in our own namespace of this kind ("net", "uts", "mnt").

        Raises OSError when /proc/<pid>/ns may not be looked at.
        """
        if self.pid == "self":
            return True
        return os.readlink(f"/proc/self/ns/{kind}") == os.readlink(f"/proc/{self.pid}/ns/{kind}")  # noqa: PTH115

    def interface_addresses(self) -> Mapping[str, Sequence[Address]]:
        """Addresses by interface name, in the kernel's order.

        Raises OSError, ValueError. In another network namespace they come from /proc/<pid>/net.
        """
        if self.shares_namespace("net"):
            return own_addresses()
        return addresses_from_proc(
            fib_trie=self.read_proc("net/fib_trie"),
            route=self.read_proc("net/route"),
            if_inet6=self.read_proc("net/if_inet6"),
        )

    def host_name(self) -> str:
        """What gethostname() gives to the process asked about. Raises OSError, UnreadError."""
        if not self.shares_namespace("uts"):
            raise UnreadError(
                SkipCause.IN_CONTAINER, "the process has a host name of its own (UTS namespace)"
            )
        return socket.gethostname()

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        """Addresses of a host name in the resolver's order; empty when it has none.

        Raises UnreadError when the resolver does not answer in time, or when the process asked about has
        its own hosts file and resolver.
        """
        if not (self.shares_namespace("mnt") and self.shares_namespace("net")):
            raise UnreadError(SkipCause.IN_CONTAINER, "the process resolves names in a container of its own")
        return resolve_in_time(name, timeout_s)

    def open_device(self, path: str) -> None:
        """Open a device node for reading and writing and close it again. Raises OSError, UnreadError."""
        if self.pid != "self":
            raise UnreadError(
                SkipCause.IN_CONTAINER,
                "only the job's own process can tell what it may open",
                how="run inside the job",
            )
        os.close(os.open(self.path(path), os.O_RDWR | os.O_CLOEXEC))

    def wait(self, seconds: float) -> None:
        """Let time pass between two samples."""
        time.sleep(seconds)

    def find_tool(self, name: str) -> str | None:
        """Full path of a tool in the folders that we trust, or None."""
        for folder in self.tool_folders:
            candidate = Path(folder) / name
            if os.access(candidate, os.X_OK):
                return str(candidate)
        return None

    def run_tool(self, argv: Sequence[str], *, timeout_s: float) -> ToolResult:
        """Run a tool by its bare name, without a shell, in its own process group, with a deadline.

        Raises UnreadError when the tool is missing, cannot start, or does not end in time. A child that
        cannot be killed (state D) is left behind, and the reason says so.
        """
        tool = self.find_tool(argv[0])
        if tool is None:
            raise UnreadError(SkipCause.TOOL_MISSING, f"`{argv[0]}` is not installed")
        try:
            process = subprocess.Popen(
                [tool, *argv[1:]],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(TOOL_ENVIRON),
                start_new_session=True,
            )
        except OSError as error:
            raise UnreadError(SkipCause.FAILED, f"`{argv[0]}` does not start: {error}") from error
        RUNNING.add(process)
        try:
            out, err = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            kill_group(process)
            raise UnreadError(SkipCause.TIMED_OUT, f"`{argv[0]}` did not answer in {timeout_s:g} s") from None
        finally:
            RUNNING.discard(process)
        return ToolResult(
            argv=tuple(argv),
            returncode=process.returncode,
            stdout=out[:MAX_FILE_BYTES].decode("utf-8", "replace"),
            stderr=err[:MAX_FILE_BYTES].decode("utf-8", "replace"),
        )


def this_world() -> World:
    """The machine and process we run in."""
    return World(environ=dict(os.environ))


def _resolve_inside(root: Path, path: str) -> Path:
    """`path` below `root` with symbolic links followed inside `root`; at most 40 links, as the kernel."""
    done: list[str] = []
    todo = [part for part in path.split("/") if part not in ("", ".")]
    links = 0
    while todo:
        part = todo.pop(0)
        if part == "..":
            done = done[:-1]
            continue
        here = root.joinpath(*done, part)
        # /proc/self below another process' root is that namespace's own view; leave magic links alone.
        if links < 40 and here.is_symlink() and not str(here).startswith("/proc/self"):
            links += 1
            target = os.readlink(here)  # noqa: PTH115 - the raw text is needed
            parts = [piece for piece in target.split("/") if piece not in ("", ".")]
            if target.startswith("/"):
                done = []
            todo = parts + todo
            continue
        done.append(part)
    return root.joinpath(*done)
