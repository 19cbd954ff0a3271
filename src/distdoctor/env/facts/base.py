"""How a fact is held: a typed value, where it was read, and the reason when it could not be read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from distdoctor.report.checking import Unread
from distdoctor.report.model import SkipCause

__all__ = ["Reading", "Section", "Unread", "UnreadError"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A group of facts about one thing. Every field that may be None has its reason in `unread`."""

    sources: Mapping[str, str] = field(default_factory=dict)
    """Field name → file, call or line that it was read from."""
    unread: Mapping[str, Unread] = field(default_factory=dict)
    """Field name → why it is None."""


class UnreadError(Exception):
    """Raised by a read that cannot give its value; `Reading.take` keeps the reason as evidence."""

    def __init__(self, cause: SkipCause, reason: str, how: str | None = None) -> None:
        super().__init__(reason)
        self.unread = Unread(cause=cause, reason=reason, how=how)


class Reading:
    """Collects the fields of one section, one guarded read each.

    A read that raises OSError, ValueError or UnreadError leaves its field None with the reason beside it,
    and the other fields are still read.

        reading = Reading()
        reading.take("kernel", "/proc/sys/kernel/osrelease", lambda: world.read_text("/proc/...").strip())
        facts = HostFacts(**reading.fields())
    """

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._sources: dict[str, str] = {}
        self._unread: dict[str, Unread] = {}

    def take(self, name: str, source: str, read: Callable[[], T]) -> T | None:
        """The value that `read` gives, kept as field `name`; None, with its reason, when it cannot be read."""
        self._sources[name] = source
        try:
            value = read()
        except UnreadError as error:
            self._unread[name] = error.unread
        except PermissionError as error:
            self._unread[name] = Unread(cause=SkipCause.NEEDS_ROOT, reason=_os_reason(error, source))
        except FileNotFoundError as error:
            self._unread[name] = Unread(cause=SkipCause.ABSENT, reason=_os_reason(error, source))
        except (OSError, ValueError) as error:
            self._unread[name] = Unread(cause=SkipCause.FAILED, reason=_os_reason(error, source))
        else:
            self._values[name] = value
            self._unread.pop(name, None)
            return value
        return None

    def put(self, name: str, source: str, value: object) -> None:
        """Keep a value that was read elsewhere."""
        self._values[name] = value
        self._sources[name] = source
        self._unread.pop(name, None)

    def miss(self, name: str, cause: SkipCause, reason: str, how: str | None = None) -> None:
        """Say why field `name` is None."""
        self._unread[name] = Unread(cause=cause, reason=reason, how=how)

    def get(self, name: str) -> Any:
        """A value taken before, or None. Any: the field's own type is declared on the section."""
        return self._values.get(name)

    def fields(self) -> dict[str, Any]:
        """Keyword arguments for the section's constructor. Any: each section declares the types."""
        return {**self._values, "sources": self._sources, "unread": self._unread}


def _os_reason(error: Exception, source: str) -> str:
    text = getattr(error, "strerror", None) or str(error) or type(error).__name__
    filename = getattr(error, "filename", None)
    return f"{filename or source}: {text}"
