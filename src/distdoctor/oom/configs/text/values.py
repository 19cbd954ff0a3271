"""What a value in a configuration means: a number, a switch, `auto`, or a variable that somebody fills in later."""

from __future__ import annotations

import math
import re

from distdoctor.oom.configs.text.tree import Entry, Section, Value

# $NAME, ${NAME:-x}, $(NAME), {{ .Values.x }}, <name>, %NAME%, @NAME@, __NAME__: filled in before the file is used.
_TEMPLATE = re.compile(
    r"\$\{[^}]*\}|\$\([^)]*\)|\$[A-Za-z_]\w*|\{\{.*?\}\}|<[A-Za-z_][\w .-]*>|%[A-Z_]+%|@[A-Z_]{2,}@|__[A-Z][A-Z_]+__|\?\?\?"
)
_NUMBER = re.compile(r"[+-]?(?:\d[\d_,]*\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_SHELL_DEFAULT = re.compile(r"\$\{[A-Za-z_]\w*:?[-=]([^${}]*)\}")

_TRUE = frozenset({"true", "yes", "on", "1", "y", "t"})
_FALSE = frozenset({"false", "no", "off", "0", "n", "f", "none", "null", ""})

# A number in a configuration beyond this is a slip or an attack, and would only make arithmetic slow.
MAX_NUMBER = 10**18


def template_in(value: Value) -> str | None:
    """The variable that has to be filled in before this value means anything; None when there is none."""
    if not isinstance(value, str):
        return None
    found = _TEMPLATE.search(value)
    return found.group() if found else None


def default_in(value: Value) -> str | None:
    """What a shell variable becomes when nobody sets it: `8` of `${NUM:-8}`."""
    if not isinstance(value, str):
        return None
    found = _SHELL_DEFAULT.fullmatch(value.strip())
    return found.group(1) if found else None


def is_auto(value: Value) -> bool:
    """`"auto"` (somebody decides at run time)."""
    return isinstance(value, str) and value.strip().lower() == "auto"


def as_number(value: Value) -> float | None:
    """A number however it is written: 5e8, "5e8", 500_000_000. None for anything else, NaN and infinity."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        number: float = value
    elif isinstance(value, str) and len(value) < 64 and _NUMBER.fullmatch(value.strip()):
        number = float(value.strip().replace("_", "").replace(",", ""))
    else:
        return None
    return number if math.isfinite(number) and abs(number) <= MAX_NUMBER else None


def as_int(value: Value) -> int | None:
    """A whole number however it is written; None for anything else (1.5, "auto", True)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value if abs(value) <= MAX_NUMBER else None
    number = as_number(value)
    if number is None or number != int(number):
        return None
    return int(number)


def as_flag(value: Value) -> bool | None:
    """A switch however it is written: true, "True", "yes", 1, "no". None for null and for anything else."""
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return bool(value) if value in (0, 1) else None
    if isinstance(value, str):
        word = value.strip().lower()
        if word in _TRUE:
            return True
        if word in _FALSE:
            return False
    return None


def as_word(value: Value) -> str | None:
    """A text without surrounding space; YAML's `no` and `off` come back as "no". None for null and structures."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value.strip() or None
    if isinstance(value, (int, float)):
        return str(value)
    return None


_UNITS = {
    "": 1,
    "k": 10**3,
    "m": 10**6,
    "g": 10**9,
    "t": 10**12,
    "ki": 1 << 10,
    "mi": 1 << 20,
    "gi": 1 << 30,
    "ti": 1 << 40,
}


def as_bytes(value: Value) -> int | None:
    """A Kubernetes quantity (`512Gi`, `64G`, 1e9) in bytes; None for anything else."""
    if isinstance(value, str):
        found = re.fullmatch(r"([\d.]+)\s*([kKmMgGtT]i?)?", value.strip())
        if found:
            try:
                return int(float(found.group(1)) * _UNITS[(found.group(2) or "").lower()])
            except ValueError:
                return None
    number = as_number(value)
    return int(number) if number is not None and number >= 0 else None


def words_of(entry: Entry | None) -> tuple[str, ...]:
    """The words of a list or of one string: ["full_shard", "auto_wrap"], "full_shard auto_wrap", "a,b"."""
    if entry is None:
        return ()
    if isinstance(entry.value, tuple):
        return tuple(word for each in entry.value if (word := as_word(each.value)))
    if isinstance(entry.value, Section):
        return ()
    text = as_word(entry.value) or ""
    return tuple(re.split(r"[\s,]+", text.strip("[]'\" "))) if text.strip("[]'\" ") else ()
