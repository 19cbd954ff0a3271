"""What one reader collects while it goes through a file, in the end a `LaunchConfig`.

Values are asked for by meaning: `integer` gives a number, and where the file says `"auto"` or names a variable it
gives None and notes what is open and who would know.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeVar

from distdoctor.oom.configs.text.tree import Entry, shown
from distdoctor.oom.configs.text.values import (
    as_flag,
    as_int,
    as_word,
    default_in,
    is_auto,
    template_in,
)
from distdoctor.oom.facts.launch import (
    ConfigDefect,
    ConfigFamily,
    ConfigKey,
    Defect,
    LaunchConfig,
    Open,
    Statement,
)
from distdoctor.oom.settings import Settings

EnumT = TypeVar("EnumT", bound=Enum)

# Which option of ours says the same. A field without one is supplied by changing the file.
HOW = {
    "world_size": "`--gpus N`",
    "num_nodes": "`--on 2x8xh100-80gb` (nodes x GPUs x type), or `--gpus N`",
    "gpus_per_node": "`--gpus-per-node N`",
    "micro_batch": "`--micro-batch N`, or the trainer's arguments as another file",
    "global_batch": "`--global-batch N`, or the trainer's arguments as another file",
    "accumulation_steps": "`--micro-batches N`, or the trainer's arguments as another file",
    "seq_len": "`--seq-len N`",
    "model": "`--model NAME`, or its config.json as another file",
    "precision": "`--precision …`, or the trainer's arguments as another file",
    "gpu_type": "`--on 8xTYPE`",
    "strategy": "`--strategy …`, or the file that names it",
}


def how(settles: str | None) -> str:
    """The step that supplies a field."""
    return HOW.get(settles or "", "fill it in in the file, or give the value on the command line")


@dataclass(slots=True)
class Reading:
    """Everything that is known of one file so far."""

    path: str
    family: ConfigFamily
    values: dict[str, Any] = field(default_factory=dict)
    """Of `Settings`, by field name; typed where they are set."""
    keys: dict[str, ConfigKey] = field(default_factory=dict)
    implied: set[str] = field(default_factory=set)
    statements: list[Statement] = field(default_factory=list)
    open_points: list[Open] = field(default_factory=list)
    defects: list[ConfigDefect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    references: list[str] = field(default_factory=list)
    dtype: str | None = None
    host_memory_limit_bytes: int | None = None
    visible_gpus: ConfigKey | None = None
    in_hf: bool = False

    # What the file determines.

    def set(
        self, name: str, value: object, entry: Entry | ConfigKey | None = None, *, implied: bool = False
    ) -> None:
        """Fill a field of `Settings`. A value that is only implied never replaces one that is said."""
        if value is None or (implied and name in self.values):
            return
        self.values[name] = value
        if implied:
            self.implied.add(name)
        else:
            self.implied.discard(name)
        if entry is not None:
            self.keys[name] = entry.key() if isinstance(entry, Entry) else entry

    def get(self, name: str) -> Any:
        """What was set so far; None when nothing was. Any: fields have different types."""
        return self.values.get(name)

    def say(self, topic: str, text: str, *entries: Entry | ConfigKey | None) -> None:
        """A statement with the keys that make it."""
        self.statements.append(Statement(topic=topic, text=text, keys=_keys(entries)))

    def note(self, text: str) -> None:
        """What a reader must know."""
        if text not in self.notes:
            self.notes.append(text)

    # What it leaves open, and what is wrong with it.

    def leave_open(
        self, what: str, why: str, *, settles: str | None = None, how_to: str | None = None
    ) -> None:
        """Something that only somebody else knows."""
        point = Open(what=what, why=why, how=how_to or how(settles), settles=settles)
        if all(each.what != what for each in self.open_points):
            self.open_points.append(point)

    def defect(
        self,
        kind: Defect,
        title: str,
        *entries: Entry | ConfigKey | None,
        why: str,
        fix: str,
        sure: bool = True,
        stops: bool = False,
    ) -> None:
        """Something wrong with the file."""
        self.defects.append(
            ConfigDefect(
                kind=kind,
                title=title[:80],
                why=why,
                fix=fix,
                keys=_keys(entries),
                is_certain=sure,
                stops_job=stops,
            )
        )

    # Values of entries.

    def integer(
        self, entry: Entry | None, *, settles: str | None = None, minimum: int = 0, what: str | None = None
    ) -> int | None:
        """A whole number of at least `minimum`; otherwise None, with the reason told."""
        if entry is None or entry.value is None:
            return None
        number = as_int(entry.value)
        if number is not None and number >= minimum:
            return number
        if number is not None:
            self.defect(
                Defect.CONFLICT,
                f"{last(entry.name)} is {number}, and must be at least {minimum}",
                entry,
                why="The launcher refuses the value, or computes nonsense with it.",
                fix=f"set `{entry.name}` to the number that is meant",
            )
            return None
        self.unknown(entry, settles=settles, what=what, kind="a whole number")
        return None

    def flag(
        self, entry: Entry | None, *, settles: str | None = None, what: str | None = None
    ) -> bool | None:
        """A switch; otherwise None, with the reason told."""
        if entry is None or entry.value is None:
            return None
        found = as_flag(entry.value)
        if found is None:
            self.unknown(entry, settles=settles, what=what, kind="true or false")
        return found

    def word(self, entry: Entry | None, *, settles: str | None = None, what: str | None = None) -> str | None:
        """A word, lower case; None for null, `auto` and variables, which are told."""
        if entry is None or entry.value is None:
            return None
        text = as_word(entry.value)
        if text is None or is_auto(text) or template_in(text):
            self.unknown(entry, settles=settles, what=what, kind="a word")
            return None
        return text.lower()

    def unknown(self, entry: Entry, *, settles: str | None, what: str | None, kind: str) -> None:
        """Say why an entry gives no value."""
        name = what or entry.name
        template = template_in(entry.value)
        if is_auto(entry.value):
            self.in_hf = True
            self.leave_open(name, f'`{entry.name}` is "auto": decided at run time', settles=settles)
        elif template:
            otherwise = default_in(entry.value)
            default = f"; without it, {otherwise}" if otherwise else ""
            self.leave_open(
                name,
                f"`{entry.name}` holds {template}, a variable that is filled in later{default}",
                settles=settles,
            )
        else:
            self.defect(
                Defect.CONFLICT,
                f"{last(entry.name)} is no usable value: {shown(entry.value)}",
                entry,
                why=f"Expected is {kind}.",
                fix=f"set `{entry.name}` to {kind}",
                sure=False,
            )

    def choice(
        self, entry: Entry | None, choices: dict[str, EnumT], *, settles: str | None = None
    ) -> EnumT | None:
        """One of a closed set by name; None, and told, for anything else."""
        text = self.word(entry, settles=settles)
        if entry is None or text is None:
            return None
        if text not in choices:
            self.leave_open(
                entry.name,
                f"`{entry.name}: {shown(entry.value)}` is not known here",
                settles=settles,
            )
            return None
        return choices[text]

    def fill(self, name: str, entry: Entry | None, *, minimum: int = 1) -> int | None:
        """Read a number and set the field of that name."""
        number = self.integer(entry, settles=name, minimum=minimum)
        self.set(name, number, entry)
        return number

    def done(self) -> LaunchConfig:
        """The configuration as it was read."""
        return LaunchConfig(
            path=self.path,
            family=self.family,
            settings=Settings(**self.values),
            statements=tuple(self.statements),
            open_points=tuple(self.open_points),
            defects=tuple(self.defects),
            notes=tuple(self.notes),
            implied=tuple(sorted(self.implied)),
            setting_keys=tuple(self.keys.items()),
            dtype=self.dtype,
            host_memory_limit_bytes=self.host_memory_limit_bytes,
            visible_gpus=self.visible_gpus,
            references=tuple(dict.fromkeys(self.references)),
            in_hf=self.in_hf,
        )


def last(name: str) -> str:
    """The last part of a dotted name."""
    # A resource of Kubernetes has dots of its own: `nvidia.com/gpu`.
    head, slash, resource = name.rpartition("/")
    if slash:
        return f"{'.'.join(head.rsplit('.', 2)[-2:])}/{resource}"[:40]
    return name.rsplit(".", 1)[-1][:40]


def _keys(entries: tuple[Entry | ConfigKey | None, ...]) -> tuple[ConfigKey, ...]:
    return tuple(each.key() if isinstance(each, Entry) else each for each in entries if each is not None)
