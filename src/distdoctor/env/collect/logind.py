"""Does systemd-logind remove a user's shared memory when the user logs out (RemoveIPC)?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.report.model import SkipCause

# systemd's order: the first main file that is there, then all drop-ins by file name, a folder that stands
# earlier in this list hiding equal names of later ones (logind.conf(5)).
FOLDERS = ("/etc/systemd", "/run/systemd", "/usr/local/lib/systemd", "/usr/lib/systemd", "/lib/systemd")

TRUE_WORDS, FALSE_WORDS = ("1", "yes", "true", "on", "y", "t"), ("0", "no", "false", "off", "n", "f")

SETTING = re.compile(r"^[ \t]*RemoveIPC\s*=\s*(\S*)\s*$", re.MULTILINE)

# Distributions print the value that they compiled in as a comment.
COMPILED_IN = re.compile(r"^[ \t]*#\s*RemoveIPC\s*=\s*(\S+)\s*$", re.MULTILINE)


def read_remove_ipc(world: World, reading: Reading) -> None:
    """Put `remove_ipc` into `reading`, with the file that decides as its source."""
    name = "remove_ipc"
    decided = reading.take(name, "/etc/systemd/logind.conf", lambda: _decide(world))
    if decided is not None:
        value, source = decided
        reading.put(name, source, value)


def _decide(world: World) -> tuple[bool, str]:
    found: tuple[bool, str] | None = None
    compiled_in: tuple[bool, str] | None = None
    files = list(_files(world))
    if not files:
        raise UnreadError(SkipCause.ABSENT, "no logind.conf here (no systemd-logind, or a container)")
    for path in files:
        text = world.read_text(path)
        for word in SETTING.findall(text):
            # An empty value, or one that is no yes or no, is ignored by systemd.
            value = _boolean(word)
            found = found if value is None else (value, path)
        comment = COMPILED_IN.search(text)
        value = _boolean(comment[1]) if comment else None
        if value is not None and compiled_in is None:
            compiled_in = (value, f"{path} (the compiled-in value, as its comment says)")
    decided = found or compiled_in
    if decided is None:
        raise UnreadError(
            SkipCause.UNSUPPORTED,
            f"{files[0]} does not set RemoveIPC, and what the distribution compiled in is not written there",
            "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager RemoveIPC",
        )
    return decided


def _files(world: World) -> Iterator[str]:
    """The main file that counts, then the drop-ins in the order in which they override."""
    mains = [f"{folder}/logind.conf" for folder in FOLDERS]
    yield from [path for path in mains if world.exists(path)][:1]
    drop_ins: dict[str, str] = {}
    for folder in FOLDERS:
        try:
            names = world.listdir(f"{folder}/logind.conf.d")
        except (FileNotFoundError, NotADirectoryError):
            continue
        for name in names:
            if name.endswith(".conf"):
                drop_ins.setdefault(name, f"{folder}/logind.conf.d/{name}")
    for name in sorted(drop_ins):
        yield drop_ins[name]


def _boolean(word: str) -> bool | None:
    lowered = word.lower()
    return True if lowered in TRUE_WORDS else False if lowered in FALSE_WORDS else None
