"""Where a rank sits: host, local rank, GPU."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.report.model import GpuRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One rank's place."""

    rank: int
    host: str
    local_rank: int
    pod: str | None = None
    gpu_index: int | None = None
    """NVML's index."""
    gpu_pci: str | None = None
    gpu_uuid: str | None = None
    gpu_model: str | None = None
    device: str = "cpu"
    """"cpu", "cuda:3"."""

    @property
    def gpu(self) -> GpuRef | None:
        """Its GPU; None when it has none, or none is known."""
        if self.gpu_index is None and self.gpu_pci is None and self.gpu_uuid is None:
            return None
        return GpuRef(
            host=self.host, index=self.gpu_index, pci=self.gpu_pci, uuid=self.gpu_uuid, model=self.gpu_model
        )
