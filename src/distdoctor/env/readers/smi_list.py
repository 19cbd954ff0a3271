"""`nvidia-smi -L` and `nvidia-smi nvlink -s`: lists headed by one line a GPU."""

from __future__ import annotations

import re
from dataclasses import replace

from distdoctor.env.facts.gpu import GpuDevice, GpuFacts, MigInstance, NvLink, NvmlState

_GPU = re.compile(r"^\s*GPU (?P<index>\d+): (?P<name>[^(]+?)\s*\(UUID: (?P<uuid>[^)\s]+)\)\s*$")
_MIG = re.compile(r"^\s*MIG (?P<profile>\S+)\s+Device\s+(?P<number>\d+):\s*(?:\(UUID: (?P<uuid>[^)\s]+)\))?")
_LINK = re.compile(
    r"^\s*Link (?P<link>\d{1,2}): (?:(?P<speed>\d+(?:\.\d+)?) GB/s|(?P<inactive><?inactive>?|Disabled|<disabled>)"
    r"|(?P<active>Active))\s*$",
    re.IGNORECASE,
)
_COUNTER = re.compile(
    r"^\s*Link (?P<link>\d{1,2}): (?P<name>Replay|Recovery|CRC(?: FLIT| Data)?|[\w ]+?) (?:Errors?|errors?): (?P<value>\d+)\s*$",
)


def has_list(text: str) -> bool:
    """True when a line names a GPU with its UUID, as both commands do."""
    return any(_GPU.match(line) for line in text.split("\n"))


def read_list(text: str, origin: str) -> GpuFacts:
    """GPUs by index with UUID, MIG slices and NVLinks, as far as the text shows them."""
    devices: dict[int, GpuDevice] = {}
    links: dict[int, dict[int, NvLink]] = {}
    migs: dict[int, list[MigInstance]] = {}
    current = -1
    for line in text.split("\n"):
        gpu = _GPU.match(line)
        if gpu:
            current = int(gpu["index"])
            source = f"{origin}: nvidia-smi"
            devices.setdefault(
                current,
                GpuDevice(
                    index=current,
                    name=gpu["name"],
                    uuid=gpu["uuid"],
                    sources={"name": source, "uuid": source, "nvlinks": f"{origin}: nvidia-smi nvlink -s"},
                ),
            )
        elif current in devices:
            if mig := _MIG.match(line):
                migs.setdefault(current, []).append(MigInstance(profile=mig["profile"], uuid=mig["uuid"]))
            elif link := _LINK.match(line):
                number = int(link["link"])
                speed = float(link["speed"]) if link["speed"] else None
                known = links.setdefault(current, {}).get(number, NvLink(link=number, active=None))
                links[current][number] = replace(known, active=link["inactive"] is None, speed_gbps=speed)
            elif counter := _COUNTER.match(line):
                _count(links.setdefault(current, {}), counter)
    return GpuFacts(
        nvml_state=NvmlState.OK if devices else None,
        devices=tuple(_complete(device, links, migs) for device in devices.values()) or None,
        sources={"devices": f"{origin}: nvidia-smi"},
    )


def _count(links: dict[int, NvLink], counter: re.Match[str]) -> None:
    """`nvidia-smi nvlink -e`: "Link 0: Replay Errors: 0"."""
    number, value, name = int(counter["link"]), int(counter["value"]), counter["name"].lower()
    link = links.get(number, NvLink(link=number, active=None))
    if name.startswith("replay"):
        link = replace(link, replay_errors=value)
    elif name.startswith("recovery"):
        link = replace(link, recovery_errors=value)
    elif name.startswith("crc"):
        link = replace(link, crc_errors=(link.crc_errors or 0) + value)
    links[number] = link


def _complete(
    device: GpuDevice, links: dict[int, dict[int, NvLink]], migs: dict[int, list[MigInstance]]
) -> GpuDevice:
    if device.index in links:
        ordered = tuple(link for _, link in sorted(links[device.index].items()))
        device = replace(device, nvlinks=ordered)
    if device.index in migs:
        device = replace(device, mig_mode=True, mig_instances=tuple(migs[device.index]))
    return device
