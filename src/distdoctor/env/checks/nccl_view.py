"""What the NCCL checks share: settings in force, versions, and the few things about host and job that decide."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from distdoctor.env.catalog.gpu_models import capability_of_model
from distdoctor.env.catalog.variables import last_nccl_version
from distdoctor.env.checks.network_view import spans_hosts
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.gpu import GpuDevice
from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.facts.variables import Setting
from distdoctor.env.versions import Version, parse_version
from distdoctor.report.model import Action, Evidence, Team

# Longer values are cut in titles and sentences; the whole value is in the facts.
SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclView:
    """The facts of one process, as the rules about NCCL ask for them. None means: not known."""

    settings: dict[str, Setting]
    nccl_text: str | None
    nccl: Version | None
    torch_text: str | None
    torch: Version | None
    is_rocm: bool
    several_hosts: bool | None
    num_ranks: int | None
    rdma_active: bool | None
    """An ACTIVE InfiniBand or RoCE port that NCCL itself can use."""
    efa: bool | None
    """An EFA device, which NCCL reaches through a plugin only."""
    roce_only: bool | None
    nvlink: bool | None
    num_gpus: int | None
    capability: tuple[int, int] | None
    """The highest compute capability on the host."""
    models: tuple[str, ...]

    @property
    def catalog_is_older(self) -> bool:
        """True when names may exist that the catalog lacks: a newer NCCL, an unknown one, or RCCL."""
        last = parse_version(last_nccl_version())
        return self.is_rocm or self.nccl is None or (last is not None and self.nccl > last)

    @property
    def why_catalog_is_older(self) -> str:
        """The sentence that goes with `catalog_is_older`."""
        if self.is_rocm:
            return "this is RCCL, which reads names of its own"
        if self.nccl_text is None:
            return f"the NCCL version is not known, and the catalog ends at {last_nccl_version()}"
        return f"NCCL {self.nccl_text} is newer than the catalog, which ends at {last_nccl_version()}"


def view_of(facts: EnvFacts) -> NcclView:
    """The view of these facts; sections that were not read give None."""
    nccl_text = facts.nccl.version if facts.nccl is not None else None
    probe, torch = facts.torch_probe, facts.torch
    torch_text = (probe.torch_version if probe is not None else None) or (
        torch.version if torch is not None else None
    )
    gpus = facts.gpus.devices if facts.gpus is not None else None
    nvidia = None if gpus is None else [each for each in gpus if each.vendor == "nvidia"]
    return NcclView(
        settings=facts.variables.in_force() if facts.variables is not None else {},
        nccl_text=nccl_text,
        nccl=parse_version(nccl_text),
        torch_text=torch_text,
        torch=parse_version(torch_text),
        is_rocm=bool((torch and torch.hip_build) or (probe and probe.hip_build)),
        several_hosts=spans_hosts(facts),
        num_ranks=facts.scheduler.world_size if facts.scheduler is not None else None,
        rdma_active=_rdma_active(facts),
        efa=_has_efa(facts),
        roce_only=_roce_only(facts),
        nvlink=_has_nvlink(facts),
        num_gpus=None if nvidia is None else len(nvidia),
        capability=max(filter(None, map(_capability, nvidia or ())), default=None),
        models=tuple(dict.fromkeys(each.name for each in nvidia or () if each.name)),
    )


def setting_evidence(setting: Setting, *, expected: str | None = None, source: str | None = None) -> Evidence:
    """One setting as evidence: name, value, where it comes from."""
    return Evidence(
        text=f"{setting.name}={shown(setting.value)} ({setting.origin})",
        value=setting.value,
        expected=expected,
        expected_source=source,
        source=setting.origin,
    )


def unset_action(setting: Setting, text: str | None = None) -> Action:
    """What removes a setting, where it was made."""
    if setting.origin.startswith("/"):
        return Action(
            team=Team.PLATFORM,
            text=text or f"Remove {setting.name} from {setting.origin}",
            command=f"grep -n {shlex.quote(setting.name)} {shlex.quote(setting.origin)}",
        )
    return Action(
        team=Team.JOB_OWNER,
        text=text or f"Remove {setting.name} from the launch script, image or job template",
        command=f"unset {shlex.quote(setting.name)}",
    )


def shown(value: str) -> str:
    """A value as it appears in a sentence: cut, and an empty one made visible."""
    if not value:
        return "(empty)"
    return value if len(value) <= SHOWN_CHARACTERS else value[: SHOWN_CHARACTERS - 1] + "…"


def nccl_number(value: str) -> int:
    """The number that strtoll(3) with base 0 reads, as NCCL does; 0 when the text begins with none.

    "0x10" is 16, "010" is 8, "4M" is 4, "true" is 0: glibc reports no error for text without digits.
    """
    text = value.strip(" \t\n\v\f\r")
    sign, digits = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    base = 16 if digits[:2].lower() == "0x" else 8 if digits[:1] == "0" else 10
    digits = digits[2:] if base == 16 else digits
    number = 0
    for letter in digits[:20]:
        figure = int(letter, 16) if letter in "0123456789abcdefABCDEF" else base
        if figure >= base:
            break
        number = number * base + figure
    return sign * number


def number_has_rest(value: str) -> bool:
    """True when strtoll(3) would stop before the end of the text ("true", "4M", "1 # on")."""
    text = value.strip(" \t\n\v\f\r").lower().lstrip("+-")
    if text[:2] == "0x":
        return not text[2:] or any(letter not in "0123456789abcdef" for letter in text[2:])
    figures = "01234567" if text[:1] == "0" else "0123456789"
    return not text or any(letter not in figures for letter in text)


def _capability(device: GpuDevice) -> tuple[int, int] | None:
    return device.compute_capability or (capability_of_model(device.name) if device.name else None)


def _ports(facts: EnvFacts) -> tuple[RdmaPort, ...] | None:
    return facts.network.rdma_ports if facts.network is not None else None


def _is_active(port: RdmaPort) -> bool:
    return port.state is not None and "ACTIVE" in port.state.upper()


def _rdma_active(facts: EnvFacts) -> bool | None:
    ports = _ports(facts)
    if ports is None:
        return None
    usable = [each for each in ports if not each.is_efa]
    if any(_is_active(each) for each in usable):
        return True
    return None if any(each.state is None for each in usable) else False


def _has_efa(facts: EnvFacts) -> bool | None:
    ports = _ports(facts)
    return None if ports is None else any(each.is_efa for each in ports)


def _roce_only(facts: EnvFacts) -> bool | None:
    ports = _ports(facts)
    active = [each for each in ports or () if _is_active(each) and not each.is_efa]
    if ports is None or any(each.link_layer is None for each in active):
        return None
    return bool(active) and all(each.link_layer == "Ethernet" for each in active)


def _has_nvlink(facts: EnvFacts) -> bool | None:
    if facts.gpus is None or facts.gpus.devices is None:
        return None
    if any(link.kind.upper().startswith("NV") and link.kind[2:].isdigit() for link in facts.gpus.pair_links):
        return True
    known = [each.nvlinks for each in facts.gpus.devices if each.nvlinks is not None]
    if any(link.active for links in known for link in links):
        return True
    return False if known and len(known) == len(facts.gpus.devices) else None
