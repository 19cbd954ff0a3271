"""A machine made of a folder: files under a temporary root, and answers to the few calls that are no files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import UnreadError
from distdoctor.env.facts.network import Address
from distdoctor.report.model import SkipCause


@dataclass(frozen=True, kw_only=True)
class FakeWorld(World):
    """A World below a folder.

    file_systems answers statvfs: path → (total bytes, free bytes). addresses: interface → "10.0.0.1/24", ….
    names answers the resolver: name → addresses; a name that is not there has none. closed_devices: device
    node → errno of opening it. later: files that change while `wait` lets time pass.
    """

    file_systems: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    addresses: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    slow_resolver: bool = False
    own_name: str = "host-a"
    closed_devices: Mapping[str, int] = field(default_factory=dict)
    later: Mapping[str, str] = field(default_factory=dict)

    def interface_addresses(self) -> Mapping[str, tuple[Address, ...]]:
        found = {}
        for name, texts in self.addresses.items():
            split = [text.partition("/") for text in texts]
            found[name] = tuple(Address(address=one, prefix_length=int(length)) for one, _, length in split)
        return found

    def host_name(self) -> str:
        return self.own_name

    def resolve(self, name: str, *, timeout_s: float) -> tuple[str, ...]:
        if self.slow_resolver:
            raise UnreadError(
                SkipCause.TIMED_OUT, f"the resolver did not answer for `{name}` in {timeout_s:g} s"
            )
        return self.names.get(name, ())

    def open_device(self, path: str) -> None:
        if path in self.closed_devices:
            number = self.closed_devices[path]
            raise OSError(number, os.strerror(number), path)
        if not self.exists(path):
            raise FileNotFoundError(2, os.strerror(2), path)

    def wait(self, seconds: float) -> None:
        for path, text in self.later.items():
            (self.root / path.lstrip("/")).write_text(text)

    def statvfs(self, path: str) -> tuple[int, int]:
        if path not in self.file_systems:
            raise FileNotFoundError(2, os.strerror(2), path)
        return self.file_systems[path]


def make_world(root: Path, files: Mapping[str, str], **attributes: object) -> FakeWorld:
    """A FakeWorld whose tree holds `files` (absolute path → text). A text "-> target" makes a symbolic link.

    Tools: a file below /usr/bin is made executable, so that `run_tool` finds it.
    """
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        if text.startswith("-> "):
            target.symlink_to(text[3:])
            continue
        target.write_text(text)
        if path.startswith("/usr/bin/"):
            target.chmod(0o755)
    return FakeWorld(root=root, tool_folders=(str(root / "usr/bin"),), **attributes)  # type: ignore[arg-type]
