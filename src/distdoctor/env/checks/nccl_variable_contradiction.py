"""Two settings that fight: only one can be in force, or one makes the other pointless."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from distdoctor.env.catalog.variables import torch_variables
from distdoctor.env.checks.base import Check, Found, Outcome, Passed, missing
from distdoctor.env.checks.nccl_risk import is_off, is_on
from distdoctor.env.checks.nccl_view import NcclView, nccl_number, setting_evidence, view_of
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.variables import Setting
from distdoctor.report.model import Action, Confidence, Fault, Severity, Team

# NCCL refuses more helper sockets than this in all (NCCL user guide, NCCL_NSOCKS_PERTHREAD).
MAX_SOCKETS = 64

_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")

Clash = Callable[[NcclView], Iterator[Found]]


def check_contradictions(facts: EnvFacts) -> Sequence[Outcome]:
    """Every pair that fights, most harmful first by its own severity."""
    if facts.variables is None:
        return [missing(facts, "variables.environment")]
    view = view_of(facts)
    found: list[Outcome] = [each for clash in _CLASHES for each in clash(view)]
    return found or [Passed(detail="no two settings fight")]


def _value(view: NcclView, name: str) -> str:
    setting = view.settings.get(name)
    return setting.value if setting is not None else ""


def _clash(
    view: NcclView,
    names: Sequence[str],
    title: str,
    why: str,
    *,
    severity: Severity = Severity.WARNING,
    confidence: Confidence = Confidence.HIGH,
    advice: str = "Keep one of the two",
) -> Found:
    settings = [view.settings[name] for name in names if name in view.settings]
    return Found(
        key="+".join(sorted(each.name for each in settings)),
        title=title[:80],
        severity=severity,
        confidence=confidence,
        evidence=tuple(setting_evidence(each) for each in settings),
        explanation=why,
        actions=(Action(team=Team.JOB_OWNER, text=advice),),
        cause_class="config:variable_contradiction",
        fault=Fault.CONFIG,
    )


def _ib_off_but_asked_for(view: NcclView) -> Iterator[Found]:
    if not is_on(_value(view, "NCCL_IB_DISABLE")):
        return
    if _value(view, "NCCL_NET").strip().upper() == "IB":
        yield _clash(
            view,
            ("NCCL_NET", "NCCL_IB_DISABLE"),
            "NCCL is told to use InfiniBand only, and not to use it",
            "NCCL_NET=IB admits no other network, and NCCL_IB_DISABLE=1 takes it away: initialisation fails.",
            severity=Severity.CRITICAL,
        )
    tuning = [name for name in view.settings if name.startswith("NCCL_IB_") and name != "NCCL_IB_DISABLE"]
    if tuning:
        yield _clash(
            view,
            ("NCCL_IB_DISABLE", *sorted(tuning)[:6]),
            f"NCCL_IB_DISABLE=1 makes {sorted(tuning)[0]} pointless",
            "Somebody set InfiniBand up, and somebody switched it off; one of the two is left over.",
        )


def _interfaces(view: NcclView) -> Iterator[Found]:
    """Gloo wants exact names; NCCL takes prefixes, '=' for exact ones and '^' for exceptions."""
    nccl, gloo = _value(view, "NCCL_SOCKET_IFNAME"), _value(view, "GLOO_SOCKET_IFNAME")
    names = [each.strip() for each in gloo.split(",") if each.strip()]
    if not nccl or not names:
        return
    strange = [each for each in names if each[0] in "^="]
    if strange:
        yield _clash(
            view,
            ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"),
            f"GLOO_SOCKET_IFNAME={gloo[:20]} uses NCCL's syntax, which Gloo does not know",
            "Gloo takes exact names of interfaces, separated by commas.",
            advice="Give Gloo the plain name of the interface",
        )
    elif not any(_nccl_admits(nccl, each) for each in names):
        yield _clash(
            view,
            ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"),
            "NCCL and Gloo are sent to different network interfaces",
            "That can be meant (RDMA hosts with an own network for control). If not, one of the two cannot reach the others.",
            severity=Severity.INFO,
            confidence=Confidence.MEDIUM,
            advice="Use the same interface unless the networks are separate on purpose",
        )


def _nccl_admits(filter_text: str, name: str) -> bool:
    text = filter_text.strip()
    excluded, text = text.startswith("^"), text.removeprefix("^")
    exact, text = text.startswith("="), text.removeprefix("=")
    patterns = [each.strip().partition(":")[0] for each in text.split(",") if each.strip()]
    hit = any(name == each if exact else name.startswith(each) for each in patterns)
    return hit != excluded


def _nvls(view: NcclView) -> Iterator[Found]:
    tokens = [each.strip().lower() for each in re.split(r"[;,:]", _value(view, "NCCL_ALGO")) if each.strip()]
    wants = not _value(view, "NCCL_ALGO").strip().startswith("^") and any(
        each.startswith("nvls") for each in tokens
    )
    if wants and is_off(_value(view, "NCCL_NVLS_ENABLE")):
        only = all(each.startswith("nvls") for each in tokens)
        yield _clash(
            view,
            ("NCCL_ALGO", "NCCL_NVLS_ENABLE"),
            "NCCL_ALGO asks for NVLS, and NCCL_NVLS_ENABLE=0 switches it off",
            "No algorithm is left: collectives fail."
            if only
            else "The list falls back to its other algorithms.",
            severity=Severity.CRITICAL if only else Severity.WARNING,
            confidence=Confidence.MEDIUM,
        )
    if not is_off(_value(view, "NCCL_CUMEM_ENABLE")):
        return
    for name in ("NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE"):
        if nccl_number(_value(view, name)) == 1:
            yield _clash(
                view,
                (name, "NCCL_CUMEM_ENABLE"),
                f"{name}=1 needs what NCCL_CUMEM_ENABLE=0 switches off",
                "NVLink SHARP and multi-node NVLink use CUDA's virtual memory functions.",
                advice="Remove NCCL_CUMEM_ENABLE=0",
            )


def _direct_paths(view: NcclView) -> Iterator[Found]:
    p2p, shm = _value(view, "NCCL_P2P_DISABLE"), _value(view, "NCCL_SHM_DISABLE")
    if is_on(p2p) and is_on(shm):
        yield _clash(
            view,
            ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"),
            "Both direct paths between the GPUs of a host are switched off",
            "Only the network is left, even for neighbours: very slow inside a host.",
        )
    level = _value(view, "NCCL_P2P_LEVEL")
    if is_on(p2p) and level and level.strip().upper() not in ("LOC", "0"):
        yield _clash(
            view,
            ("NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL"),
            "NCCL_P2P_LEVEL allows direct access, and NCCL_P2P_DISABLE=1 forbids it",
            "NCCL_P2P_DISABLE=1 is taken as the level LOC.",
        )


def _counts(view: NcclView) -> Iterator[Found]:
    for low, high in (
        ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS"),
        ("NCCL_MIN_CTAS", "NCCL_MAX_CTAS"),
        ("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS"),
    ):
        least, most = nccl_number(_value(view, low)), nccl_number(_value(view, high))
        if least > most > 0:
            yield _clash(view, (low, high), f"{low}={least} exceeds {high}={most}", "Only one can hold.")
    sockets = nccl_number(_value(view, "NCCL_NSOCKS_PERTHREAD"))
    threads = nccl_number(_value(view, "NCCL_SOCKET_NTHREADS"))
    if sockets > 0 and threads > 0 and sockets * threads > MAX_SOCKETS:
        yield _clash(
            view,
            ("NCCL_NSOCKS_PERTHREAD", "NCCL_SOCKET_NTHREADS"),
            f"{sockets} sockets × {threads} threads exceed NCCL's {MAX_SOCKETS}",
            "NCCL lowers the number of sockets by itself, so the values do not mean what they say.",
        )


def _config_files(view: NcclView) -> Iterator[Found]:
    for setting in view.settings.values():
        if setting.overridden:
            yield _overridden(view, setting)


def _overridden(view: NcclView, setting: Setting) -> Found:
    lost = "; ".join(setting.overridden[:3])
    return _clash(
        view,
        (setting.name,),
        f"{setting.name} is set in two places with different values",
        f"In force is {setting.value[:60]} ({setting.origin}); passed over: {lost[:200]}. "
        "The environment wins over configuration files, and the user's file over /etc/nccl.conf.",
        severity=Severity.INFO,
        advice="Decide on one place, so that what is read is what is meant",
    )


def _devices(view: NcclView) -> Iterator[Found]:
    """NVIDIA_VISIBLE_DEVICES is for the container runtime; inside, GPUs are numbered anew from 0."""
    outer, inner = _value(view, "NVIDIA_VISIBLE_DEVICES").strip(), view.settings.get("CUDA_VISIBLE_DEVICES")
    if inner is None or not outer or outer.lower() == "all":
        return
    indices = [each.strip() for each in inner.value.split(",") if each.strip().isdecimal()]
    names = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
    if outer.lower() in ("void", "none"):
        if indices:
            yield _clash(
                view,
                names,
                "The container was started without GPUs, and CUDA is told to use some",
                f"NVIDIA_VISIBLE_DEVICES={outer} gives the container no GPU by way of NVIDIA's runtime; device "
                "plugins may add them in another way.",
                confidence=Confidence.LOW,
            )
        return
    count = len([each for each in outer.split(",") if each.strip()])
    beyond = [each for each in indices if int(each) >= count]
    if beyond and (view.num_gpus is None or view.num_gpus <= count):
        yield _clash(
            view,
            names,
            f"CUDA_VISIBLE_DEVICES names GPU {beyond[0][:6]}, but the container has {count}",
            "Inside a container GPUs are numbered anew from 0. CUDA stops at the first number that does not exist.",
            severity=Severity.CRITICAL,
            confidence=Confidence.MEDIUM if view.num_gpus is None else Confidence.HIGH,
            advice="Remove CUDA_VISIBLE_DEVICES inside the container",
        )


def _allocator(view: NcclView) -> Iterator[Found]:
    both = [view.settings[name] for name in _ALLOCATOR if name in view.settings]
    if len(both) == 2 and both[0].value != both[1].value:
        yield _clash(
            view,
            _ALLOCATOR,
            "Two allocator settings differ; torch takes the newer name",
            "torch 2.9 and newer read PYTORCH_ALLOC_CONF first, older ones only PYTORCH_CUDA_ALLOC_CONF.",
        )
    for setting in both:
        text = setting.value.replace(" ", "").lower()
        if "expandable_segments:true" not in text:
            continue
        if "backend:cudamallocasync" in text:
            yield _clash(
                view,
                (setting.name,),
                "expandable_segments has no effect with the cudaMallocAsync backend",
                "It belongs to torch's own allocator; CUDA's has its own way.",
                confidence=Confidence.MEDIUM,
            )
        if is_off(_value(view, "NCCL_CUMEM_ENABLE")):
            yield _clash(
                view,
                (setting.name, "NCCL_CUMEM_ENABLE"),
                "expandable_segments and NCCL_CUMEM_ENABLE=0 do not go together well",
                "Buffers of expandable segments can be shared and registered by NCCL only through CUDA's virtual "
                "memory functions, which NCCL_CUMEM_ENABLE=0 switches off.",
                confidence=Confidence.LOW,
                severity=Severity.INFO,
                advice="Remove NCCL_CUMEM_ENABLE=0 unless it works round a known fault",
            )


def _two_names(view: NcclView) -> Iterator[Found]:
    """Old and new name of one torch setting, with different values: the new one wins."""
    for variable in torch_variables().values():
        for old in variable.old_names:
            if variable.name in view.settings and old in view.settings and not old.startswith("PYTORCH_"):
                new_value, old_value = view.settings[variable.name].value, view.settings[old].value
                if new_value != old_value:
                    yield _clash(
                        view,
                        (variable.name, old),
                        f"{variable.name} is also set by its old name, differently",
                        f"torch takes {variable.name}={new_value[:40]}; {old}={old_value[:40]} is passed over.",
                        advice=f"Remove {old}",
                    )


_CLASHES: tuple[Clash, ...] = (
    _ib_off_but_asked_for,
    _interfaces,
    _nvls,
    _direct_paths,
    _counts,
    _config_files,
    _devices,
    _allocator,
    _two_names,
)

CHECK = Check(
    id="nccl-variable-contradiction",
    title="settings that fight",
    run=check_contradictions,
    preflight=True,
)
