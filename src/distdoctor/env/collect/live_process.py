"""A running process as a World: its own variables, files, limits and libraries instead of this shell's."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from distdoctor.env.collect.world import World
from distdoctor.errors import InputError

# What the kernel appends in /proc/PID/maps to a file that was removed or replaced.
DELETED = " (deleted)"

# proc_pid_stat(5), field `flags`: PF_KTHREAD of include/linux/sched.h.
_PF_KTHREAD = 0x00200000

# Libraries that explain how a job talks to GPUs and network; others are left out.
_OF_INTEREST = (
    "libnccl",
    "librccl",
    "libtorch",
    "libc10_cuda",
    "libcuda.so",
    "libcudart",
    "libnvidia-ml",
    "libibverbs",
    "libmlx5",
    "libfabric",
    "libefa",
    "libnvshmem",
    "libamdhip64",
)
_MAX_LIBRARIES = 64
_MAX_ENVIRON_BYTES = 2 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProcess:
    """A process that looks like a rank of a training job."""

    pid: int
    parent: int
    command: str
    rank: int | None
    local_rank: int | None

    def describe(self) -> str:
        """`PID 4242 (rank 3, local rank 3: python train.py)`, for messages."""
        rank = f"rank {self.rank}, local rank {self.local_rank}: " if self.rank is not None else ""
        return f"PID {self.pid} ({rank}{self.command})"


def world_of_process(pid: int) -> World:
    """The world as process `pid` sees it: its root folder, the variables that it was started with, its limits.

    Variables are those at its start: what the program sets later (`os.environ[…] = …`) the kernel does not
    show. Raises InputError when the process is gone, a zombie, a kernel thread, or may not be read by us.
    """
    proc = Path(f"/proc/{pid}")
    if pid <= 0 or not proc.is_dir():
        raise InputError(f"there is no process {pid}", hint="list the candidates: `pgrep -af python`")
    stat = _read_stat(proc)
    if stat.state in ("Z", "X"):
        raise InputError(
            f"process {pid} has ended; only its entry is left (a zombie)", hint="choose a running rank"
        )
    if stat.flags & _PF_KTHREAD:
        raise InputError(
            f"process {pid} is a kernel thread", hint="choose a rank of the job: `pgrep -af python`"
        )
    try:
        environ = _read_environ(proc)
        os.listdir(proc / "root")  # noqa: PTH208 - only whether it may be read
    except PermissionError:
        raise InputError(
            f"process {pid} belongs to somebody else, or may not be inspected from here",
            hint="run as the job's user or as root, outside of the container's sandbox",
        ) from None
    except (FileNotFoundError, ProcessLookupError):
        raise InputError(f"process {pid} ended while it was being read") from None
    except OSError as error:
        raise InputError(f"process {pid} cannot be read: {error.strerror}") from None
    return World(root=proc / "root", environ=environ, pid=str(pid))


def find_job_process(say: Callable[[str], None] | None = None) -> int:
    """The process that `--pid auto` means: among the ranks of jobs here, the one with the lowest local rank.

    say: called with one line that names the choice and the others, when there are several.
    Raises InputError when there is none.
    """
    processes, num_hidden = find_job_processes()
    if not processes:
        hidden = (
            f"; {num_hidden} processes of other users could not be read, so run as root" if num_hidden else ""
        )
        raise InputError(
            "no training process found here: none has RANK and WORLD_SIZE set or libtorch or libnccl mapped",
            hint=f"name one with `--pid PID`{hidden}",
        )
    chosen, *others = processes
    if others and say is not None:
        shown = ", ".join(each.describe() for each in others[:8])
        more = f" and {len(others) - 8} more" if len(others) > 8 else ""
        say(f"chose {chosen.describe()}; also here: {shown}{more}")
    return chosen.pid


def find_job_processes(proc: Path = Path("/proc")) -> tuple[tuple[JobProcess, ...], int]:
    """Ranks of training jobs, lowest local rank first, and how many processes could not be looked at.

    A Python process counts when it was started with RANK and WORLD_SIZE, or has libtorch or libnccl mapped.
    Data-loader workers (children of a rank) and distdoctor itself with its parents do not.
    """
    found: list[JobProcess] = []
    num_hidden = 0
    ours = _ancestors(proc)
    for entry in proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) in ours:
            continue
        try:
            process = _job_process(entry)
        except PermissionError:
            num_hidden += 1
        except (OSError, ValueError, InputError):
            continue  # ended meanwhile, or nothing that we understand
        else:
            if process is not None:
                found.append(process)
    leaders = [each for each in found if not _inherited(each, found)]
    with_rank = [each for each in leaders if each.rank is not None]
    ordered = sorted(with_rank or leaders, key=_order)
    return tuple(ordered), num_hidden


def mapped_libraries(pid: int) -> tuple[str, ...]:
    """Paths of NCCL, CUDA, torch and network libraries that process `pid` has mapped, as it names them.

    A file that was replaced since carries the kernel's " (deleted)". Raises InputError as `world_of_process`.
    """
    try:
        return read_mapped_libraries(world_of_process(pid))
    except OSError as error:
        raise InputError(f"memory map of process {pid} cannot be read: {error.strerror}") from None


def read_mapped_libraries(world: World) -> tuple[str, ...]:
    """`mapped_libraries` of the process that this world is about. Raises OSError."""
    return parse_maps(world.read_proc("maps"))


def parse_maps(text: str) -> tuple[str, ...]:
    """Libraries of interest in the text of /proc/PID/maps, each once, in its order."""
    paths: dict[str, None] = {}
    for line in text.splitlines():
        at = line.find("/")
        if at < 0:
            continue
        path = line[at:]
        name = path.rpartition("/")[2]
        if name.startswith(_OF_INTEREST) and ".so" in name:
            paths[path] = None
            if len(paths) >= _MAX_LIBRARIES:
                break
    return tuple(paths)


def parse_environ(data: bytes) -> dict[str, str]:
    """Variables in the bytes of /proc/PID/environ; the first of a doubled name counts, as getenv(3) does."""
    environ: dict[str, str] = {}
    for entry in data[:_MAX_ENVIRON_BYTES].split(b"\0"):
        name, mark, value = entry.partition(b"=")
        if mark and name:
            environ.setdefault(name.decode("utf-8", "replace"), value.decode("utf-8", "replace"))
    return environ


@dataclass(frozen=True, slots=True)
class _Stat:
    state: str
    parent: int
    flags: int


def _read_stat(proc: Path) -> _Stat:
    """Fields of /proc/PID/stat. The command in parentheses may hold spaces and parentheses itself."""
    try:
        text = (proc / "stat").read_text("utf-8", "replace")
        fields = text[text.rindex(")") + 1 :].split()
        return _Stat(state=fields[0], parent=int(fields[1]), flags=int(fields[6]))
    except (OSError, ValueError, IndexError):
        raise InputError(f"process {proc.name} ended while it was being read") from None


def _read_environ(proc: Path) -> dict[str, str]:
    with (proc / "environ").open("rb") as stream:
        return parse_environ(stream.read(_MAX_ENVIRON_BYTES))


def _job_process(proc: Path) -> JobProcess | None:
    command = (proc / "cmdline").read_bytes()[:4096].rstrip(b"\0").split(b"\0")
    words = [word.decode("utf-8", "replace") for word in command]
    if not _is_python(proc, words) or _is_distdoctor(words) or _read_stat(proc).state in ("Z", "X"):
        return None
    environ = _read_environ(proc)
    rank = _number(environ, "RANK") if _number(environ, "WORLD_SIZE") is not None else None
    if rank is None:
        with (proc / "maps").open("rb") as stream:
            text = stream.read(4 << 20).decode("utf-8", "replace")
        if not any("/libtorch" in path or "/libnccl" in path for path in parse_maps(text)):
            return None
    return JobProcess(
        pid=int(proc.name),
        parent=_read_stat(proc).parent,
        command=" ".join(words)[:80],
        rank=rank,
        local_rank=_number(environ, "LOCAL_RANK"),
    )


def _is_python(proc: Path, words: list[str]) -> bool:
    """By command word, name or executable; torch renames its main thread to pt_main_thread."""
    names = [words[0].rpartition("/")[2]] if words else []
    names.append((proc / "comm").read_text("utf-8", "replace").strip())
    with contextlib.suppress(OSError):  # only the owner may see it
        names.append((proc / "exe").readlink().name)
    return any(name.startswith(("python", "pypy", "pt_main_thread")) for name in names)


def _is_distdoctor(words: list[str]) -> bool:
    """`distdoctor …`, `python …/distdoctor …`, `python -m distdoctor …`; not a script that merely has such a path."""
    head = words[:4]
    if any(word.rpartition("/")[2] == "distdoctor" for word in head[:2]):
        return True
    return any(
        flag == "-m" and module.partition(".")[0] == "distdoctor" for flag, module in itertools.pairwise(head)
    )


def _inherited(process: JobProcess, found: list[JobProcess]) -> bool:
    """True for a child that merely inherited its parent's rank: a data-loader worker."""
    return any(each.pid == process.parent and each.rank == process.rank for each in found)


def _order(process: JobProcess) -> tuple[int, int, int]:
    far = 1 << 30
    return (
        process.local_rank if process.local_rank is not None else far,
        process.rank if process.rank is not None else far,
        process.pid,
    )


def _ancestors(proc: Path) -> set[int]:
    """Our own pid and those of our parents, up to init."""
    pids: set[int] = set()
    pid = os.getpid()
    while pid > 0 and pid not in pids:
        pids.add(pid)
        try:
            pid = _read_stat(proc / str(pid)).parent
        except InputError:
            break
    return pids


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name, "").strip()
    return int(text) if text.isdecimal() and len(text) < 10 else None
