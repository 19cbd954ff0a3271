"""Which memory and CPU limits does the process' cgroup impose? Versions 1, 2 and mixed; all visible ancestors count.

A limit of an ancestor (a pod, a Slurm job, a systemd slice) binds as much as the process' own, so the whole
path up to the top of what is visible is read, and the tightest limit is told with the file it stands in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, partial

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.process import UNLIMITED
from distdoctor.report.model import SkipCause

# Version 1 says "no limit" by the largest page-aligned number: 9223372036854771712 with 4 KiB pages, less
# with 64 KiB pages. No machine has 2^62 bytes.
NO_LIMIT_FROM = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """A cgroup file system: where it is mounted, and which cgroup its top folder is."""

    folder: str
    top: str
    controllers: tuple[str, ...]
    """Version 1 only; empty for version 2."""
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """The process' cgroup for one controller and its visible ancestors, own first."""

    version: int
    path: str
    """As /proc/<pid>/cgroup gives it."""
    folders: tuple[str, ...]
    sees_root: bool
    """False inside a container: limits may sit above what is visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The tightest limit on the way up; `folder` is None when no level has one."""

    value: float
    folder: str | None
    file: str


def read_cgroup(world: World, reading: Reading) -> None:
    """Put the cgroup_* fields of ProcessFacts into `reading`."""
    source = world.proc("cgroup")
    memory = cache(lambda: find_hierarchy(world, "memory"))
    reading.take("cgroup_version", source, lambda: memory().version)
    reading.take("cgroup_path", source, lambda: memory().path)
    reading.take("cgroup_sees_root", source, lambda: memory().sees_root)
    _read_memory(world, reading, memory)
    _read_cpu(world, reading, cache(lambda: find_hierarchy(world, "cpu")))


def find_hierarchy(world: World, controller: str) -> Hierarchy:
    """The process' cgroup that `controller` ("memory", "cpu") acts on, and its ancestors.

    Raises OSError as the reads do; UnreadError when the cgroup cannot be seen from here.
    """
    version, path = own_path(world.read_proc("cgroup"), controller)
    mount = find_mount(world, controller, version)
    if "/../" in f"{path}/" or path.startswith("/.."):
        raise UnreadError(
            SkipCause.IN_CONTAINER,
            f"cgroup `{path}` lies outside what this container sees",
            "run on the host, or in the container of the process",
        )
    below = _below(path, mount.top)
    parts = [part for part in below.split("/") if part]
    chain = [_join(mount.folder, parts[:depth]) for depth in range(len(parts), -1, -1)]
    folders = tuple(folder for folder in chain if world.exists(folder))
    if not folders:
        raise UnreadError(
            SkipCause.ABSENT, f"{mount.folder} is not there", "mount the cgroup file system read-only"
        )
    return Hierarchy(version=version, path=path, folders=folders, sees_root=_is_root(world, mount))


def own_path(text: str, controller: str) -> tuple[int, str]:
    """(version, path) of the process' cgroup for `controller`, from the text of /proc/<pid>/cgroup.

    In the mixed layout version 1 has the controller when a line names it. Raises ValueError when no line fits.
    """
    unified: str | None = None
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        names, separator, path = rest.partition(":")
        if not separator:
            continue
        if controller in names.split(","):
            return 1, path or "/"
        if number == "0" and not names:
            unified = path or "/"
    if unified is None:
        raise ValueError(f"no cgroup of the {controller} controller")
    return 2, unified


def find_mount(world: World, controller: str, version: int) -> Mount:
    """Where the hierarchy of `controller` is mounted: by mountinfo, else in the usual places."""
    try:
        mounts = list(parse_mounts(world.read_proc("mountinfo")))
    except OSError:
        mounts = []
    fitting = [
        mount
        for mount in mounts
        if mount.version == version and (version == 2 or controller in mount.controllers)
    ]
    # Other mounts of the same hierarchy (of containers that this host runs) come second.
    fitting.sort(key=lambda mount: not mount.folder.startswith("/sys/fs/cgroup"))
    if fitting:
        return fitting[0]
    usual = "/sys/fs/cgroup" if version == 2 else f"/sys/fs/cgroup/{controller}"
    if version == 2 and world.exists("/sys/fs/cgroup/unified/cgroup.controllers"):
        usual = "/sys/fs/cgroup/unified"
    return Mount(folder=usual, top="/", controllers=(controller,), version=version)


def parse_mounts(text: str) -> Iterator[Mount]:
    """The cgroup mounts of /proc/<pid>/mountinfo."""
    for line in text.splitlines():
        before, separator, after = line.partition(" - ")
        fields, tail = before.split(" "), after.split(" ")
        if not separator or len(fields) < 5 or tail[0] not in ("cgroup", "cgroup2"):
            continue
        yield Mount(
            folder=_unescape(fields[4]),
            top=_unescape(fields[3]),
            controllers=tuple(tail[-1].split(",")) if tail[0] == "cgroup" else (),
            version=1 if tail[0] == "cgroup" else 2,
        )


def tightest(
    world: World, hierarchy: Hierarchy, file: str, parse: Callable[[World, str], float | None]
) -> Limit:
    """The smallest limit of all levels; UNLIMITED when every level says so.

    `parse` gives a level's limit, None for "no limit", and raises FileNotFoundError where the controller does
    not act. A level that cannot be read hides a limit only when no other level has one: then its error is raised.
    """
    best: Limit | None = None
    failure: Exception | None = None
    acted = False
    for folder in hierarchy.folders:
        try:
            value = parse(world, f"{folder}/{file}")
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            failure = failure or error
            continue
        acted = True
        if value is not None and (best is None or value < best.value):
            best = Limit(value=value, folder=folder, file=f"{folder}/{file}")
    if best is not None:
        return best
    if failure is not None:
        raise failure
    if not acted and not hierarchy.sees_root:
        raise UnreadError(
            SkipCause.IN_CONTAINER,
            f"no {file} in {hierarchy.folders[0]}: the controller acts above what this container sees",
            "run on the host",
        )
    return Limit(value=UNLIMITED, folder=None, file=f"{hierarchy.folders[0]}/{file}")


def _read_memory(world: World, reading: Reading, hierarchy: Callable[[], Hierarchy]) -> None:
    limit = cache(lambda: _memory_limit(world, hierarchy()))
    name = "cgroup_memory_max_bytes"
    value = reading.take(name, "/sys/fs/cgroup", lambda: int(limit().value))
    if value is not None:
        reading.put(name, limit().file, value)
    # Usage is told of the cgroup whose limit counts: a pod fills up by all of its containers.
    bound = _bound_folder(hierarchy, limit)
    old = reading.get("cgroup_version") == 1
    current = "memory.usage_in_bytes" if old else "memory.current"
    prefix = "total_" if old else ""
    _take_at(reading, "cgroup_memory_current_bytes", bound, current, lambda path: int(world.read_line(path)))
    # `file` (`cache`) would count /dev/shm too, which the kernel cannot give back.
    _take_at(
        reading,
        "cgroup_memory_file_bytes",
        bound,
        "memory.stat",
        lambda path: (
            _counter(world, path, f"{prefix}active_file") + _counter(world, path, f"{prefix}inactive_file")
        ),
    )
    if old:
        reading.miss(
            "cgroup_memory_slab_reclaimable_bytes", SkipCause.UNSUPPORTED, "cgroup version 1 does not tell"
        )
    else:
        _take_at(
            reading,
            "cgroup_memory_slab_reclaimable_bytes",
            bound,
            "memory.stat",
            lambda path: _counter(world, path, "slab_reclaimable"),
        )
    events = "memory.oom_control" if old else "memory.events"

    def kills(path: str) -> int:
        return _counter(world, path, "oom_kill")

    _take_at(reading, "cgroup_oom_kills", lambda: hierarchy().folders[0], events, kills)
    if value is not None and bound() != hierarchy().folders[0]:
        _take_at(reading, "cgroup_limit_oom_kills", bound, events, kills)
    else:
        reading.miss("cgroup_limit_oom_kills", SkipCause.ABSENT, "no other cgroup's limit is known to count")


def _read_cpu(world: World, reading: Reading, hierarchy: Callable[[], Hierarchy]) -> None:
    limit = cache(lambda: _cpu_limit(world, hierarchy()))
    name = "cgroup_cpu_quota_cpus"
    value = reading.take(name, "/sys/fs/cgroup", lambda: float(limit().value))
    if value is not None:
        reading.put(name, limit().file, value)
    bound = _bound_folder(hierarchy, limit)
    for field, key in (
        ("cgroup_cpu_periods", "nr_periods"),
        ("cgroup_cpu_throttled_periods", "nr_throttled"),
    ):
        _take_at(reading, field, bound, "cpu.stat", partial(_counter, world, key=key))


def _take_at(
    reading: Reading, name: str, folder: Callable[[], str], file: str, read: Callable[[str], int]
) -> None:
    """Take a field from `file` of a folder that may itself be unknown; its source is the full path."""
    value = reading.take(name, file, lambda: read(f"{folder()}/{file}"))
    if value is not None:
        reading.put(name, f"{folder()}/{file}", value)


def _bound_folder(hierarchy: Callable[[], Hierarchy], limit: Callable[[], Limit]) -> Callable[[], str]:
    """The cgroup whose limit counts, or the process' own when there is no limit or it cannot be told."""

    def folder() -> str:
        own = hierarchy().folders[0]
        try:
            return limit().folder or own
        except (OSError, ValueError, UnreadError):
            return own

    return folder


def _memory_limit(world: World, hierarchy: Hierarchy) -> Limit:
    if hierarchy.version == 2:
        return tightest(world, hierarchy, "memory.max", _bytes_limit)
    limit = tightest(world, hierarchy, "memory.limit_in_bytes", _bytes_limit)
    return _hidden_limit(world, hierarchy.folders[0], limit)


def _cpu_limit(world: World, hierarchy: Hierarchy) -> Limit:
    if hierarchy.version == 2:
        return tightest(world, hierarchy, "cpu.max", _quota_v2)
    return tightest(world, hierarchy, "cpu.cfs_quota_us", _quota_v1)


def _hidden_limit(world: World, own: str, limit: Limit) -> Limit:
    """Version 1 tells the tightest limit of all ancestors, also of those that a container does not see."""
    try:
        value = _limit(str(_counter(world, f"{own}/memory.stat", "hierarchical_memory_limit")))
    except (OSError, ValueError):
        return limit
    if value is None or (limit.value != UNLIMITED and value >= limit.value):
        return limit
    return Limit(value=value, folder=None, file=f"{own}/memory.stat (hierarchical_memory_limit)")


def _bytes_limit(world: World, path: str) -> float | None:
    return _limit(world.read_line(path))


def _limit(text: str) -> float | None:
    if text == "max":
        return None
    value = int(text)
    return None if value < 0 or value >= NO_LIMIT_FROM else value


def _quota_v2(world: World, path: str) -> float | None:
    quota, _, period = world.read_line(path).partition(" ")
    return None if quota == "max" else _cpus(int(quota), int(period))


def _quota_v1(world: World, path: str) -> float | None:
    quota = int(world.read_line(path))
    period = path.replace("cfs_quota_us", "cfs_period_us")
    return None if quota < 0 else _cpus(quota, int(world.read_line(period)))


def _cpus(quota_us: int, period_us: int) -> float:
    if quota_us <= 0 or period_us <= 0:
        raise ValueError(f"quota {quota_us} of period {period_us} makes no sense")
    return quota_us / period_us


def _counter(world: World, path: str, key: str) -> int:
    """A number of a file of `key value` lines. Raises ValueError when the key is not there."""
    for line in world.read_text(path).splitlines():
        name, _, value = line.partition(" ")
        if name == key:
            return int(value)
    raise UnreadError(SkipCause.UNSUPPORTED, f"{path} has no `{key}`")


def _is_root(world: World, mount: Mount) -> bool:
    """True when the top folder is the machine's root cgroup, above which there is nothing."""
    if mount.top != "/":
        return False
    if mount.version == 1:
        # The root of a version 1 hierarchy alone has a release_agent.
        return world.exists(f"{mount.folder}/release_agent")
    # Every cgroup but the root has cgroup.events.
    return not world.exists(f"{mount.folder}/cgroup.events")


def _below(path: str, top: str) -> str:
    if top in ("", "/"):
        return path
    if path == top or path.startswith(f"{top}/"):
        return path[len(top) :]
    # The mount shows another cgroup than the process' path says: its top is the nearest that we can see.
    return "/"


def _join(folder: str, parts: list[str]) -> str:
    return "/".join((folder.rstrip("/"), *parts)) if parts else folder


def _unescape(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text
