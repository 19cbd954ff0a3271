"""Which host names may be replaced wherever they stand in a text?

A host called `gpu` or `node` is known by its fields; replacing the word everywhere would wreck every sentence and
protect nothing. A host called `gpu-07` or `frontier` is replaced everywhere.
"""

from __future__ import annotations

import re

from distdoctor.report.word_set import word_set

# Words of this trade and of our own reports.
COMMON_WORDS = word_set(
    "admin agent all and any api are as at backend batch be bench benchmark by cache can check checks "
    "checkup client close cluster command compute config container controller cpu crash critical cuda "
    "data debian default dev device devices disk distdoctor docker doctor down driver each elastic "
    "environment error ethernet evidence exit expected fabric failed false fast file files first for "
    "found free from full gateway get gloo gpu gpus group hang has have head hidden high host hosts "
    "idle if image in infiniband info is it its job jobs kernel key kubernetes last launch launcher "
    "leader left library link linux local localhost log login logs loss low machine main manager "
    "master memory missing model module monitor more most mpi name namespace nccl net network new "
    "next no node nodes none not null nvidia of off ok old on one only open option or other out "
    "package passed path pod pods port primary private probe process prod proxy public python pytorch "
    "rank ranks rdma read ready rendezvous replica report right root run running runs same scheduler "
    "script secondary server servers service set sets shared signal since size skipped slow slurm "
    "space start step steps stop storage store switch system task tasks test testing tests than that "
    "the this thread time timeout to torch train trainer training true two ubuntu unknown up use used "
    "user uses value variable version warning was watch web will with worker workers write yes "
)

# Devices, models and counters that look like host names: `gpu0`, `mlx5_0`, `h100`, `rank3`, `x86_64`.
_TECHNICAL = re.compile(
    r"(?:gpu|cuda|rank|eth|ib|en|eno|ens|enp|bond|lo|docker|veth|cali|nvme|sd|cpu|core|numa|dev|nvlink|nvswitch|rail|port|"
    r"mlx[45]?|hfi|hsn|efa|rdmap|roce|bnxt_re|irdma|step|layer|stage|epoch|tp|pp|dp|cp|ep|"
    r"a|b|h|l|p|t|v|gb|gh|rtx|gtx|mi|sm|cu|cuda|rocm|xid|fp|bf|int|uint|float|bfloat|v|x|r|e|z|zero|fsdp|ddp|"
    r"python|torch|py|gen|pcie|i)[-_]?\d+[a-z]{0,4}(?:[-_]?\d+)*|x86[-_]64|amd64|aarch64|arm64|linux-gnu|el\d+|\d+[a-z]?",
    re.IGNORECASE,
)


def is_distinctive(host: str) -> bool:
    """True when `host` names a machine and nothing else, so that every occurrence means it."""
    return len(host) >= 2 and host.lower() not in COMMON_WORDS and _TECHNICAL.fullmatch(host) is None
