"""`--help` loads nothing heavy. Modules are counted, not seconds: times flake on shared machines."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "numpy", "pydantic", "pynvml", "jinja2")

SCRIPT = """
import json, sys
from distdoctor.__main__ import main
sys.argv = ["distdoctor", *{arguments!r}]
try:
    main()
except SystemExit:
    pass
print(json.dumps(sorted(name.partition(".")[0] for name in sys.modules)), file=sys.stderr)
"""


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["env", "--help"], ["checkup", "--help"]])
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=arguments)], capture_output=True, text=True, timeout=60
    )
    loaded = set(json.loads(result.stderr.strip().splitlines()[-1]))
    assert not loaded & set(HEAVY)
    assert result.stdout.strip()


def test_checkup_loads_no_torch_or_numpy() -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(arguments=["checkup"])],
        capture_output=True,
        text=True,
        timeout=60,
    )
    loaded = set(json.loads(result.stderr.strip().splitlines()[-1]))
    assert not loaded & {"torch", "numpy", "pydantic"}
