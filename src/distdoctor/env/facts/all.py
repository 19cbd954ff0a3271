"""All facts of one process on one host, whatever they were read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from distdoctor.env.facts.base import Unread
from distdoctor.env.facts.gpu import GpuFacts
from distdoctor.env.facts.host import ContainerFacts, HostFacts
from distdoctor.env.facts.kernel_log import KernelLogFacts
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.network import NetworkFacts
from distdoctor.env.facts.process import ProcessFacts
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.torch import PythonFacts, TorchFacts, TorchProbe
from distdoctor.env.facts.variables import VariableFacts

LIVE = "this machine"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvFacts:
    """Facts by topic. A section is None when it was not collected; `unread[section name]` may say why.

    Sections about the host (host, container, gpus, network, kernel_log) are collected once per host; the
    others belong to the process: its interpreter, libraries, variables, limits and place in the job.
    """

    origin: str = LIVE
    """"this machine", or the file that the facts were read from."""
    host_name: str | None = None
    python: PythonFacts | None = None
    torch: TorchFacts | None = None
    torch_probe: TorchProbe | None = None
    nccl: NcclFacts | None = None
    variables: VariableFacts | None = None
    process: ProcessFacts | None = None
    host: HostFacts | None = None
    container: ContainerFacts | None = None
    gpus: GpuFacts | None = None
    network: NetworkFacts | None = None
    scheduler: SchedulerFacts | None = None
    kernel_log: KernelLogFacts | None = None
    unread: Mapping[str, Unread] = field(default_factory=dict)

    @property
    def is_live(self) -> bool:
        """True when read from a machine rather than from text."""
        return self.origin == LIVE
