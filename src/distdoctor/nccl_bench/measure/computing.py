"""Work for the device while collectives are measured, as in training: matrix products, one after another."""

from __future__ import annotations

import threading
from types import TracebackType

import torch

# Edge of the matrices: some milliseconds of work on a GPU, which fills all of it; a fraction of one on a CPU core.
_GPU_EDGE, _CPU_EDGE = 4096, 256

# Products that wait on the GPU's stream at most, so that the work ends soon after it is told to.
_IN_FLIGHT = 4


class Computing:
    """Keeps the device busy from `with` to its end, from a thread and, on a GPU, on a stream of their own."""

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        edge = _GPU_EDGE if on_gpu else _CPU_EDGE
        dtype = torch.bfloat16 if on_gpu else torch.float32
        self._device = device
        self._factor = torch.ones(edge, edge, dtype=dtype, device=device)
        self._product = torch.empty_like(self._factor)
        self._over = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._work, name="distdoctor-computing", daemon=True)

    def __enter__(self) -> Computing:
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _work(self) -> None:
        multiply = self._on_gpu if self._device.type == "cuda" else self._on_cpu
        multiply()

    def _on_cpu(self) -> None:
        while not self._over.is_set():
            torch.mm(self._factor, self._factor, out=self._product)
            self._begun.set()

    def _on_gpu(self) -> None:
        stream = torch.cuda.Stream(self._device)
        handed: list[torch.cuda.Event] = []
        with torch.cuda.stream(stream):
            while not self._over.is_set():
                torch.mm(self._factor, self._factor, out=self._product)
                event = torch.cuda.Event()
                event.record(stream)
                handed.append(event)
                self._begun.set()
                if len(handed) > _IN_FLIGHT:
                    handed.pop(0).synchronize()
        stream.synchronize()
