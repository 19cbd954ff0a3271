"""Reading the JSON tables that lie beside this file, each at most once and only when a rule asks for it."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any


@functools.cache
def read_table(name: str) -> dict[str, Any]:
    """The table `name`.json. Any: each table's own module gives its rows their types.

    Raises FileNotFoundError or ValueError when the installation is incomplete.
    """
    table: dict[str, Any] = json.loads(Path(__file__).with_name(f"{name}.json").read_text(encoding="utf-8"))
    return table
