"""A configuration's JSON as an object, and its numbers, each checked before anything is computed from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from distdoctor.errors import InputError

# The longest published config.json (quantised, every layer listed) has some 300 kB. Our own bound.
MAX_CHARACTERS = 4 << 20

# No size of a model comes near: the largest vocabularies have 10^6 rows. Our own bound.
MAX_SIZE = 10_000_000

HINT = "give the `config.json` of a decoder-only model, a preset (`llama3-8b`), or the number of parameters (`--params`)"


def parse_object(text: str, path: str) -> dict[str, Any]:
    """The JSON object in `text`. Any: whoever takes a value checks its type.

    Raises InputError when the text is no JSON, ends early, or is a list or a bare value.
    """
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"`{path}` is too large for a model's config.json", hint=HINT)
    body = text.lstrip("\ufeff").strip()
    if not body:
        raise InputError(f"`{path}` is empty", hint=HINT)
    try:
        value = json.loads(body)
    except json.JSONDecodeError as problem:
        # Where the parser stops at the end of the text, the text was cut; so it is inside an unfinished string.
        is_cut = problem.pos >= len(body) or problem.msg.startswith("Unterminated string")
        what = "ends in the middle of its JSON" if is_cut else "is not JSON"
        raise InputError(f"`{path}` {what}: line {problem.lineno}: {problem.msg}", hint=HINT) from None
    except RecursionError:
        raise InputError(f"`{path}` is nested too deeply for a model's config.json", hint=HINT) from None
    except ValueError:
        # A number of more than 4300 digits.
        raise InputError(f"`{path}` holds a number that is too long to be read", hint=HINT) from None
    if not isinstance(value, dict):
        kind = "a list" if isinstance(value, list) else "a single value"
        raise InputError(f"`{path}` holds {kind}, not the settings of a model", hint=HINT)
    return value


def size_of(config: Mapping[str, Any], key: str, path: str, *, least: int = 1) -> int | None:
    """The whole number under `key`; None when the key is absent or null.

    Raises InputError for anything that is no whole number between `least` and 10^7.
    """
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _bad(path, key, value, "is no number")
    # NaN and the infinities are no whole numbers either.
    if isinstance(value, float) and not value.is_integer():
        raise _bad(path, key, value, "is no whole number")
    if value < least:
        raise _bad(path, key, value, f"is less than {least}")
    if value > MAX_SIZE:
        raise _bad(path, key, value, f"is more than {MAX_SIZE:,}, which no model has")
    return int(value)


def flag_of(config: Mapping[str, Any], key: str, path: str) -> bool | None:
    """The truth value under `key`; None when the key is absent or null. Raises InputError for anything else."""
    value = config.get(key)
    if value is None or isinstance(value, bool):
        return value
    if value in (0, 1) and not isinstance(value, str):
        return bool(value)
    raise _bad(path, key, value, "is neither true nor false")


def _bad(path: str, key: str, value: object, why: str) -> InputError:
    shown = json.dumps(value) if isinstance(value, (str, int, float, bool)) else type(value).__name__
    if len(shown) > 40:
        shown = f"{shown[:37]}..."
    return InputError(f"`{path}`: {key} {why}: {shown}", hint="correct the value, or give `--params` instead")
