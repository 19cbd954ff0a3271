"""A `torch` folder for one interpreter: a package that does what a test wants when it is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

GOOD = """
__version__ = "2.9.1+cu128"
class version:
    cuda, hip = "12.8", None
"""


def write_torch(folder: Path, code: str, modules: Mapping[str, str] | None = None) -> dict[str, str]:
    """Write `folder/torch/__init__.py` (and files below `torch/`); gives the variables that put it first on sys.path."""
    package = folder / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(code)
    for name, text in (modules or {}).items():
        target = package / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONSAFEPATH": "1"}
