"""Traces of PyTorch's profiler, as torch writes them in several versions. Times are microseconds."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASE_NS = 1_751_410_836_000_000_000
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
OLD_NCCL = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)"
OLD_SEND_RECV = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_cublas"
LAMBDA = (
    "void at::native::elementwise_kernel<128, 2, f(at::TensorIteratorBase&)::{lambda()#3}, {lambda()#1}>(int)"
)
LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


@dataclass
class TraceBuilder:
    rank: int | None = 0
    world_size: int = 2
    device: int = 0
    base_ns: int | None = BASE_NS
    groups: list[dict[str, Any]] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    events: list[dict[str, Any]] = field(default_factory=list)
    old_categories: bool = False
    """Capitalised, as torch wrote them until 1.10."""

    def event(self, cat: str, name: str, ts: float, dur: float, args: dict[str, Any] | None = None) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": cat,
                "name": name,
                "pid": 4000,
                "tid": 4000,
                "ts": ts,
                "dur": dur,
                "args": args or {},
            }
        )

    def step(self, number: int, ts: float, dur: float) -> None:
        self.event(
            "Operator" if self.old_categories else "user_annotation", f"ProfilerStep#{number}", ts, dur
        )

    def loader(self, ts: float, dur: float) -> None:
        self.event("user_annotation", LOADER, ts, dur)

    def kernel(
        self,
        ts: float,
        dur: float,
        name: str = GEMM,
        *,
        launched: float | None = None,
        stream: int = 7,
        **args: Any,
    ) -> None:
        """Work of the device and, where `launched` is given, the call that launched it."""
        number = len(self.events) + 1
        cat = "kernel"
        if name.startswith("Memcpy"):
            cat = "gpu_memcpy"
        elif name.startswith("Memset"):
            cat = "gpu_memset"
        if self.old_categories:
            cat = {"kernel": "Kernel", "gpu_memcpy": "Memcpy", "gpu_memset": "Memset"}[cat]
        where = {"device": self.device, "context": 1, "stream": stream, "correlation": number}
        self.event(cat, name, ts, dur, {**where, **args})
        if launched is not None:
            runtime = "Runtime" if self.old_categories else "cuda_runtime"
            self.event(runtime, "cudaLaunchKernel", launched, 4.0, {"cbid": 211, "correlation": number})

    def nccl(
        self, ts: float, dur: float, *, seq: int | None = None, ranks: str = "[0, 1]", **more: Any
    ) -> None:
        """A collective with what torch 2.4 and later write beside it."""
        args = {
            "Collective name": more.pop("collective", "allreduce"),
            "In msg nelems": 1000,
            "Out msg nelems": 1000,
            "Group size": more.pop("size", 2),
            "dtype": "BFloat16",
            "Process Group Name": more.pop("group", "0"),
            "Process Group Description": more.pop("what", "default_pg"),
            "Process Group Ranks": ranks,
        }
        if seq is not None:
            args["Seq"] = seq
        kernel = more.pop("kernel", NCCL)
        launched = more.pop("launched", None)
        stream = more.pop("stream", 20)
        self.kernel(ts, dur, kernel, launched=launched, stream=stream, **args, **more)

    def metadata(self) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "schemaVersion": 1,
            "deviceProperties": [{"id": each, "name": "NVIDIA H100 80GB HBM3"} for each in range(8)],
        }
        if self.rank is not None:
            info: dict[str, Any] = {"backend": "nccl", "rank": self.rank, "world_size": self.world_size}
            if self.groups:
                info |= {"pg_count": len(self.groups), "pg_config": self.groups}
            fields["distributedInfo"] = info
        if self.base_ns is not None:
            fields["baseTimeNanoseconds"] = self.base_ns
        return fields | self.extra

    def text(self, style: str = "spaced") -> str:
        """`spaced` and `indented` as torch did and does, `compact` and `behind` as programs that rewrite traces do."""
        body = {**self.metadata(), "traceName": "t.json"}
        if style == "compact":
            return json.dumps({**self.metadata(), "traceEvents": self.events}, separators=(",", ":"))
        if style == "behind":
            return json.dumps({"traceEvents": self.events, **body})
        if style == "indented":
            return json.dumps({**self.metadata(), "traceEvents": self.events, "traceName": "t"}, indent=4)
        if style == "name first":
            events = [
                dict(sorted(event.items(), key=lambda item: item[0] != "name")) for event in self.events
            ]
            return json.dumps({**self.metadata(), "traceEvents": events})
        head = json.dumps(self.metadata(), indent=2)[:-2]
        events_text = ",\n  ".join(json.dumps(event) for event in self.events)
        return (
            f'\n{head},\n  "traceEvents": [\n  {events_text},\n'
            '  {\n    "name": "Record Window End", "ph": "i", "s": "g",\n    "pid": "", "tid": "", "ts": 12.5\n  }\n  ],\n'
            '  "traceName": "t.json",\n  "displayTimeUnit": "ms"\n}\n'
        )

    def write(self, path: Path, style: str = "spaced") -> str:
        path.parent.mkdir(parents=True, exist_ok=True)
        data = self.text(style).encode()
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        return str(path)


def rank_trace(
    rank: int,
    *,
    compute_us: float = 3000.0,
    num_steps: int = 3,
    first: int = 5,
    seq: bool = True,
    **more: Any,
) -> TraceBuilder:
    """Steps of 10 ms: data, copies, compute, and one all-reduce that ends on all ranks at 9 ms."""
    trace = TraceBuilder(rank=rank, device=rank, **more)
    for index in range(num_steps):
        began = 1_000_000.0 + 10_000 * index
        trace.step(first + index, began, 9_900)
        trace.loader(began + 10, 200)
        trace.kernel(began + 300, 100, "Memcpy HtoD (Pinned -> Device)", launched=began + 250, stream=22)
        trace.kernel(began + 500, compute_us, launched=began + 400)
        start = began + 500 + compute_us
        if seq:
            trace.nccl(start, began + 9_000 - start, seq=index + 1, launched=began + 450)
        else:
            trace.kernel(start, began + 9_000 - start, OLD_NCCL, launched=began + 450, stream=20)
    return trace
