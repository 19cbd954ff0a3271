#!/usr/bin/env bash
# The suite on the project's own environment, then the pure unit tests on the other Pythons of this machine.
set -euo pipefail
bin=$1

"$bin/python" -m pytest -q -n 2 --dist loadgroup

# The unit tests that need no torch, on another version of Python: what differs there shows with two sets of parameters.
run_on() {
  local version=$1 python venv=build/venv-$1
  python=$(ls -d "$HOME"/.pyenv/versions/"$version".*/bin/python 2>/dev/null | tail -n 1 || true)
  [ -n "$python" ] || python=$(command -v "python$version" || true)
  if [ -z "$python" ]; then
    echo "python $version: not on this machine, unit tests not run there"
    return
  fi
  if [ ! "$venv/.ready" -nt pyproject.toml ]; then
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip --disable-pip-version-check --quiet install -e ".[parquet]" pytest hypothesis jsonschema markdown-it-py
    touch "$venv/.ready"
  fi
  echo "python $version: pure unit tests, no torch"
  "$venv/bin/python" -m pytest -q --first-and-last -m "not launch and not ranks and not once" tests/report tests/env tests/oom tests/straggler tests/test_units.py
}

# The oldest and the newest that are supported, side by side; what stands between them has shown nothing that these do not.
mkdir -p build
run_on 3.10 >build/tests-3.10.txt 2>&1 &
oldest=$!
run_on 3.13 >build/tests-3.13.txt 2>&1 &
newest=$!
status=0
wait "$oldest" || status=$?
wait "$newest" || status=$?
cat build/tests-3.10.txt build/tests-3.13.txt
exit "$status"
