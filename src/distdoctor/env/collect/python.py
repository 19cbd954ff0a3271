"""Which Python does the job use, and what would it find? Asked without importing torch.

The order in which an interpreter is chosen:
1. the one given by `--python`;
2. with `--pid`, the one that the live process runs (not run by us when it belongs to somebody else);
3. the one that runs distdoctor, when torch can be found from it;
4. the first `python3` or `python` on PATH from which torch can be found;
5. the one that runs distdoctor, which then has no torch: a check says so and asks for `--python`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from distdoctor.env.collect.interpreter import TIMEOUT_S, Interpreter, ask_interpreter
from distdoctor.env.collect.world import World
from distdoctor.env.distributions import is_of_interest, parse_folder_name
from distdoctor.env.facts.base import UnreadError
from distdoctor.env.facts.torch import PythonFacts
from distdoctor.report.model import SkipCause

GIVEN = "--python"
OURS = "runs distdoctor"
ON_PATH = "first python of PATH that has torch"
LIVE_PROCESS = "the live process"

# Files by which `import torch` would succeed in finding something, in the order in which Python looks.
PACKAGE_FILES = ("torch/__init__.py", "torch.py")

# Packages in a site-packages; a longer list is no site-packages.
_MAX_NAMES = 20_000


def collect_python(world: World, executable: str | None, *, timeout_s: float = TIMEOUT_S) -> PythonFacts:
    """Facts about the job's interpreter. A path that cannot be used leaves `executable` None with the reason.

    executable: what `--python` says: a path, or a name to look up on the process' PATH.
    timeout_s: how long one interpreter may take to answer.
    """
    looked_at: list[str] = []
    try:
        interpreter, chosen_by = _choose(world, executable, looked_at, timeout_s)
    except UnreadError as error:
        unread = dict.fromkeys(("executable", "version", "search_path"), error.unread)
        return PythonFacts(chosen_by=GIVEN if executable else None, unread=unread)
    environ = world.environ
    source = f"{interpreter.executable}, {chosen_by}"
    search_path = interpreter.search_path
    return PythonFacts(
        executable=interpreter.executable,
        version=interpreter.version,
        prefix=interpreter.prefix,
        conda_prefix=interpreter.prefix
        if world.exists(f"{interpreter.prefix}/conda-meta")
        else environ.get("CONDA_PREFIX"),
        in_virtualenv=interpreter.prefix != interpreter.base_prefix,
        search_path=search_path,
        distributions=_distributions(world, search_path),
        chosen_by=chosen_by,
        also_looked_at=tuple(looked_at),
        sources={"executable": source, "version": source, "search_path": source, "distributions": source},
    )


def finds_torch(world: World, search_path: Iterable[str]) -> bool:
    """True when `import torch` would find a package or module along `search_path`."""
    return any(world.exists(f"{entry}/{name}") for entry in search_path for name in PACKAGE_FILES)


def _choose(
    world: World, executable: str | None, looked_at: list[str], timeout_s: float
) -> tuple[Interpreter, str]:
    if executable is not None:
        return ask_interpreter(_resolve(world, executable), world.environ, timeout_s), GIVEN
    if world.pid != "self":
        try:
            live = _live_executable(world)
        except OSError as error:
            raise UnreadError(
                SkipCause.NEEDS_ROOT,
                f"process {world.pid}: {error.strerror or error}",
                "run as root or as its owner",
            ) from error
        return ask_interpreter(live, world.environ, timeout_s), LIVE_PROCESS
    ours = our_interpreter(world.environ)
    if finds_torch(world, ours.search_path):
        return ours, OURS
    looked_at.append(ours.executable)
    for candidate in _on_path(world):
        if os.path.realpath(candidate) == os.path.realpath(ours.executable) and not _is_virtual(candidate):
            continue
        try:
            other = ask_interpreter(candidate, world.environ, timeout_s)
        except UnreadError:
            continue
        if finds_torch(world, other.search_path):
            return other, ON_PATH
        looked_at.append(candidate)
    looked_at.remove(ours.executable)
    return ours, OURS


def our_interpreter(environ: Mapping[str, str]) -> Interpreter:
    """The interpreter we run in, with the search path that `python -c "import torch"` would have.

    Our own sys.path begins with the folder of our script or with the working folder, and has PYTHONPATH as it
    was when we started; both are taken out and put back as the process that is asked about would have them.
    """
    named = _split(os.environ.get("PYTHONPATH", ""))
    started_with = {*named, *map(os.path.abspath, named)}
    rest = [entry for entry in sys.path[1:] if entry and entry not in started_with]
    if getattr(sys.flags, "safe_path", False):  # since 3.11: nothing was put in front
        rest = [entry for entry in sys.path if entry and entry not in started_with]
    front = [] if environ.get("PYTHONSAFEPATH") else _working_folder()
    entries = [*front, *_split(environ.get("PYTHONPATH", "")), *rest]
    return Interpreter(
        executable=sys.executable or "python3",
        version=".".join(map(str, sys.version_info[:3])),
        prefix=sys.prefix,
        base_prefix=sys.base_prefix,
        search_path=tuple(dict.fromkeys(os.path.abspath(entry) for entry in entries)),  # noqa: PTH100 - no link is followed
    )


def _working_folder() -> list[str]:
    try:
        return [os.getcwd()]  # noqa: PTH109 - a text is wanted
    except OSError:
        return []  # it was deleted under us


def _split(value: str) -> list[str]:
    return [entry for entry in value.split(os.pathsep) if entry]


def _resolve(world: World, executable: str) -> str:
    if "/" in executable:
        return os.path.abspath(os.path.expanduser(executable))  # noqa: PTH100, PTH111 - a venv's link must stay a link
    for folder in _split(world.environ.get("PATH", "")):
        if os.access(f"{folder}/{executable}", os.X_OK):
            return f"{folder}/{executable}"
    raise UnreadError(
        SkipCause.ABSENT, f"`{executable}` is not on PATH", "give the full path: --python /path/to/bin/python"
    )


def _on_path(world: World) -> list[str]:
    """`python3` and `python` on PATH; folders that others may write to are left out, for we may be root."""
    if world.root != Path("/"):
        return []  # what lies in another tree is not run here
    found: list[str] = []
    for folder in _split(world.environ.get("PATH", "")):
        for name in ("python3", "python"):
            candidate = f"{folder}/{name}"
            if (
                folder.startswith("/")
                and world.exists(candidate)
                and _only_its_owner_writes(world, candidate)
            ):
                found.append(candidate)
                break
    return list(dict.fromkeys(found))[:3]


def _only_its_owner_writes(world: World, path: str) -> bool:
    try:
        folder, target = world.path(path.rpartition("/")[0]).stat(), world.path(path).stat()
    except OSError:
        return False
    trusted = {0, os.geteuid()}
    return all(each.st_uid in trusted and not each.st_mode & 0o002 for each in (folder, target))


def _is_virtual(executable: str) -> bool:
    """A virtual environment's python is a link to the one it was made from, but sees other packages."""
    folder = executable.rpartition("/")[0].rpartition("/")[0]
    return os.path.exists(f"{folder}/pyvenv.cfg")  # noqa: PTH110 - a plain question


def _live_executable(world: World) -> str:
    """The interpreter of the process `world.pid`, as it was called (a virtual environment's link, not its target)."""
    how = "give the job's interpreter: --python /path/to/bin/python"
    if not world.shares_namespace("mnt"):
        raise UnreadError(
            SkipCause.IN_CONTAINER,
            f"process {world.pid} runs in a container of its own; its Python is not run",
            how,
        )
    owner = world.path(f"/proc/{world.pid}").stat().st_uid
    if owner != os.geteuid():
        raise UnreadError(
            SkipCause.NOT_ASKED,
            f"process {world.pid} belongs to user {owner}; its Python is not run as another user",
            how,
        )
    called = world.read_proc("cmdline").partition("\0")[0]
    if "/" not in called:
        folders = _split(world.environ.get("PATH", ""))
        called = next(
            (f"{each}/{called}" for each in folders if os.access(f"{each}/{called}", os.X_OK)), called
        )
    return called if called.startswith("/") and "python" in called else world.readlink_proc("exe")


def _distributions(world: World, search_path: Iterable[str]) -> dict[str, str]:
    """Distributions of interest; the first on the search path wins, as it does for Python."""
    found: dict[str, str] = {}
    for entry in search_path:
        for name in list_folder(world, entry):
            distribution = parse_folder_name(name) if name.endswith(("-info",)) else None
            if distribution is not None and is_of_interest(distribution.name):
                found.setdefault(distribution.name, distribution.version)
    return dict(sorted(found.items()))


def list_folder(world: World, folder: str) -> list[str]:
    """Names in one folder of a search path; empty when it is a zip file, is missing or may not be read."""
    try:
        return world.listdir(folder)[:_MAX_NAMES]
    except OSError:
        return []
