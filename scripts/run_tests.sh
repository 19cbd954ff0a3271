#!/usr/bin/env bash
# The suite on the project's own environment, then the pure unit tests on the other Pythons of this machine.
set -euo pipefail
bin=$1

"$bin/python" -m pytest -q -n 2 --dist loadgroup

# The oldest and the newest that are supported; what stands between them has shown nothing that these do not.
for version in 3.10 3.13; do
  python=$(ls -d "$HOME"/.pyenv/versions/"$version".*/bin/python 2>/dev/null | tail -n 1 || true)
  [ -n "$python" ] || python=$(command -v "python$version" || true)
  if [ -z "$python" ]; then
    echo "python $version: not on this machine, unit tests not run there"
    continue
  fi
  venv=build/venv-$version
  if [ ! -e "$venv/.ready" ]; then
    "$python" -m venv "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install -e ".[parquet]" pytest pytest-xdist hypothesis jsonschema markdown-it-py
    touch "$venv/.ready"
  fi
  echo "python $version: pure unit tests, no torch"
  "$venv/bin/python" -m pytest -q -n 2 --dist loadgroup -m "not launch and not ranks and not once" tests/report tests/env tests/oom tests/straggler tests/test_units.py
done
