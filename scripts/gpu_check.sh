#!/usr/bin/env bash
# What needs a real GPU, in one call of at most 8 minutes, on a machine with one GPU and no network.
#
#   scripts/gpu_check.sh [OUT]      OUT: folder for results (default build/gpu_check)
#
# STAGES='oom_' runs only stages whose names match this pattern; TOTAL_S is the limit of all together (default 480).
# It makes no environment and downloads nothing: python3 of the machine with its torch, our sources by PYTHONPATH,
# and wheels from .whl/ when that folder is there (installed beside, not into, the machine's Python).
# Each stage has its own limit and result file, the most important first. A stage that fails does not stop the next; one
# for which no time is left is left out, and the summary says so.
# Without a GPU the same stages run and say so: that is the rehearsal.
set -u
cd "$(dirname "$0")/.."
out=${1:-build/gpu_check}
mkdir -p "$out"
python=${PYTHON:-python3}
export PYTHONPATH="$PWD/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

if compgen -G ".whl/*.whl" >/dev/null; then
  site=$(mktemp -d)
  "$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" .whl/*.whl
  export PYTHONPATH="$PYTHONPATH:$site"
fi

summary="$out/summary.txt"
: >"$summary"
total_s=${TOTAL_S:-480}
# What a stage needs at least to say anything.
least_s=10

stage() { # name limit_s command...
  local name=$1 limit=$2
  shift 2
  [[ $name =~ ${STAGES:-.} ]] || return 0
  local left=$((total_s - SECONDS))
  if ((left < least_s)); then
    printf '%-22s left out: %s s were used up\n' "$name" "$total_s" | tee -a "$summary"
    return 0
  fi
  ((limit > left - 5)) && limit=$((left - 5))
  local began=$SECONDS
  timeout -k 5 "$limit" "$@" >"$out/$name.out" 2>"$out/$name.err"
  local rc=$?
  printf '%-22s rc=%-4s %4ss\n' "$name" "$rc" "$((SECONDS - began))" | tee -a "$summary"
}

dd() { "$python" -m distdoctor "$@"; }
export -f dd
export python

timeout 60 "$python" -c 'import sys, torch; sys.exit(0 if torch.cuda.is_available() else 3)' 2>/dev/null ||
  echo 'not checked on a GPU: torch finds none here, this is a rehearsal' | tee -a "$summary"
stage machine 20 bash -c 'uname -a; nvidia-smi; "$python" -c "import torch; print(torch.__version__, torch.version.cuda)"'
# A real out-of-memory error: the message and the memory snapshot that torch leaves, and what we read in them.
stage oom_record 60 bash -c "'$python' scripts/record_memory_snapshot.py '$out/oom_snapshot.pickle' >'$out/oom_message.txt'; rc=\$?; cat '$out/oom_message.txt'; exit \$rc"
stage oom_explain 30 bash -c "dd oom explain '$out/oom_message.txt' '$out/oom_snapshot.pickle' -v --format text -o '$out/oom.json' -o '$out/oom.html' --force"
# Below what a rank needs, in forward, backward and the step: its own count beside what `oom explain` reads in its snapshot.
stage oom_limit 60 "$python" scripts/check_oom_limit.py "$out/oom_limit"
# `oom simulate` beside real tensors: allocated and reserved, phases, and what differs for a known reason.
stage oom_measure 120 "$python" benchmarks/oom_gpu.py --time-limit "${OOM_MEASURE_S:-95}" -o "$out/oom_measure.md" --json "$out/oom_measure.json"
# One rank on NCCL: no crash, busbw n/a, version and transport read. Its own log is asked for and read back.
stage bench_one 90 "$python" -m torch.distributed.run --standalone --nproc-per-node 1 -m distdoctor nccl-bench \
  --time-limit 40s --max-bytes 256M --collectives all -v --format text -o "$out/bench_one.json" --force
# Two ranks on one GPU: NCCL takes them for two hosts and goes through sockets. A smoke test of two ranks on NCCL,
# no measurement of a fabric; --share-gpus labels the report so.
stage bench_two 120 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 --no-python bash -c \
  'export NCCL_HOSTID=host$LOCAL_RANK NCCL_NET=Socket NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo; exec "$0" "$@"' \
  "$python" -m distdoctor nccl-bench --share-gpus --time-limit 60s --max-bytes 16M -v --format text \
  -o "$out/bench_two.json" -o "$out/bench_two.html" --force
# A rank that is stopped in the middle: the report names it, and the run ends by itself.
stage bench_stopped 90 bash -c '"$python" -m torch.distributed.run --standalone --nproc-per-node 2 --no-python bash -c \
  "export NCCL_HOSTID=host\$LOCAL_RANK NCCL_NET=Socket NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_SOCKET_IFNAME=lo; exec $python -m distdoctor nccl-bench --share-gpus --timeout 8s --time-limit 60s --max-bytes 64M --format text" &
  for i in $(seq 45); do sleep 1; grep -q "all 2 ranks" "$0" && break; done; sleep 2
  kill -STOP "$(pgrep -f "^[^ ]*python[^ ]* -m distdoctor" | tail -n 1)"; wait
  sleep 5; pgrep -f "^[^ ]*python[^ ]* -m distdoctor" || echo "nothing left running"' "$out/bench_stopped.err"
stage bench_files 20 bash -c "dd nccl-bench '$out/bench_one.json' --format text; dd report show '$out/bench_one.json' --format text | head -40"
stage nvml_snapshot 40 "$python" scripts/record_nvml_snapshot.py "$out/nvml_snapshot.json"
stage checkup 15 bash -c 'dd checkup -v --format text'
stage env 90 bash -c "dd env -v --format text -o '$out/env.json' -o '$out/env.html' -o '$out/env.md' --force"
stage env_no_torch 30 bash -c "dd env --no-torch --format json"
# The command must leave no CUDA context behind: nvidia-smi's process list before and after.
stage no_context 60 bash -c 'nvidia-smi --query-compute-apps=pid,used_memory --format=csv; dd env --format json >/dev/null; nvidia-smi --query-compute-apps=pid,used_memory --format=csv'
# A live job on the GPU, read from outside.
stage live_process 90 bash -c '"$python" -c "import torch, time; x = torch.ones(1 << 20, device=\"cuda\" if torch.cuda.is_available() else \"cpu\"); print(x.sum().item(), flush=True); time.sleep(45)" & sleep 20; dd env --no-torch --pid $! --format text -v; kill $!'
stage from_text 30 bash -c "nvidia-smi -q >'$out/smi_q.txt'; nvidia-smi >'$out/smi.txt'; dd env '$out/smi_q.txt' '$out/smi.txt' --format text"
stage torchrun 90 "$python" -m torch.distributed.run --standalone --nproc-per-node 2 -m distdoctor env --format text
stage benchmark 150 "$python" benchmarks/env.py --repeats 3

cat "$summary"
