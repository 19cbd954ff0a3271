#!/usr/bin/env bash
# Runs a command on every rank, with another environment on some: what a broken launch script does.
#   DD_ALGO_RANK   the rank that gets NCCL_ALGO=Tree, the others get Ring (default 2; "none": nobody)
#   DD_BREAK_RANK  the rank whose PYTHONPATH begins with DD_BREAK_PATH
#   DD_STOP_RANK, DD_KILL_RANK  the rank that is stopped or killed before it reports
set -u
rank=${RANK:-${SLURM_PROCID:-0}}
if [ "${DD_ALGO_RANK-2}" != none ]; then
  export NCCL_ALGO=Ring
  [ "$rank" = "${DD_ALGO_RANK-2}" ] && export NCCL_ALGO=Tree
fi
[ "$rank" = "${DD_BREAK_RANK-none}" ] && export PYTHONPATH="$DD_BREAK_PATH${PYTHONPATH:+:$PYTHONPATH}"
[ "$rank" = "${DD_STOP_RANK-none}" ] && kill -STOP $$
# The others must be able to listen by then: torchrun ends them 0.1 s after the first has died.
[ "$rank" = "${DD_KILL_RANK-none}" ] && sleep "${DD_KILL_AFTER_S-3}" && kill -KILL $$
exec "$@"
