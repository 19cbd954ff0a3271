"""Rules about settings of NCCL's network: InfiniBand, RoCE, sockets, GPUDirect."""

from __future__ import annotations

from distdoctor.env.checks.nccl_risk import Risk, Rule, is_off, is_on, sure
from distdoctor.env.checks.nccl_view import NcclView, nccl_number
from distdoctor.env.versions import at_least
from distdoctor.report.model import Confidence, Severity

_GUIDE = "NCCL user guide, environment variables"


def _both(one: bool | None, two: bool | None) -> bool | None:
    """Three-valued and."""
    if one is False or two is False:
        return False
    return None if one is None or two is None else True


def _not_the_jobs_host(view: NcclView) -> bool:
    """A host without any GPU (login node, build machine) says nothing about the hosts that the job runs on."""
    return view.num_gpus == 0


def _ib_disable(view: NcclView, value: str) -> Risk | None:
    if not is_on(value) or (view.efa and not view.rdma_active):
        return None
    title = "NCCL_IB_DISABLE=1 keeps the job off the RDMA network"
    slow = "Traffic between hosts goes over TCP sockets instead of InfiniBand or RoCE: no error, only slow."
    if view.rdma_active is False and not _not_the_jobs_host(view):
        return Risk(
            severity=Severity.INFO,
            title="NCCL_IB_DISABLE=1 is set; this host has no active RDMA port",
            why=f"It changes nothing here. Where the job finds an RDMA network, it stays unused: {slow.lower()}",
            source=_GUIDE,
        )
    known = _both(view.rdma_active, view.several_hosts)
    if view.rdma_active:
        seen = "An ACTIVE RDMA port is here."
    elif view.rdma_active is None:
        seen = "Whether this host has an RDMA port was not seen."
    else:
        seen = "This host has no GPU, so it is not where the job runs; those hosts were not seen."
    alone = " On one host alone it changes little." if view.several_hosts is False else ""
    return Risk(
        severity=Severity.CRITICAL if known else Severity.WARNING,
        confidence=Confidence.HIGH if view.rdma_active and known is not None else Confidence.MEDIUM,
        title=title,
        why=f"{slow} {seen}{alone}",
        source=_GUIDE,
    )


def _net_socket(view: NcclView, value: str) -> Risk | None:
    if value.strip().lower() != "socket":
        return None
    rdma = True if view.rdma_active or view.efa else view.rdma_active
    if rdma is False and not _not_the_jobs_host(view):
        return None
    known = _both(rdma, view.several_hosts)
    return Risk(
        severity=Severity.CRITICAL if known else Severity.WARNING,
        confidence=Confidence.HIGH if rdma and known is not None else Confidence.MEDIUM,
        title="NCCL_NET=Socket keeps the job off the RDMA network",
        why="NCCL is told to use TCP sockets whatever else the host has: no error, only slow.",
        source=_GUIDE,
    )


def _ib_timeout(view: NcclView, value: str) -> Risk | None:
    del view
    if not value or 0 < nccl_number(value) < 32:
        return None
    return Risk(
        severity=Severity.WARNING,
        title=f"NCCL_IB_TIMEOUT={value[:12]} means that a dead link is never noticed",
        why="The exponent must be 1 to 31; 0 or 32 and more means no timeout: the job then hangs on a dead link.",
        source=_GUIDE,
        advice="Leave it unset, or use 20 to 23 on large fabrics",
        command="export NCCL_IB_TIMEOUT=22",
    )


def _ib_gid_index(view: NcclView, value: str) -> Risk | None:
    if not value or nccl_number(value) < 0 or view.rdma_active is False:
        return None
    recent = at_least(view.nccl, "2.21")
    if recent is False or view.roce_only is False:
        return None
    return Risk(
        severity=Severity.WARNING if recent else Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="NCCL_IB_GID_INDEX fixes the RoCE address index for all hosts",
        why=(
            "NCCL 2.21 and newer find the index by themselves. The table's order can differ between hosts and "
            "reboots; a wrong index fails with `ibv_modify_qp failed: Invalid argument` or cannot reach the peer."
        ),
        source="NCCL user guide, NCCL_IB_GID_INDEX: default -1 since 2.21",
    )


def _gdr_level(view: NcclView, value: str) -> Risk | None:
    if value.strip().upper() not in ("LOC", "0") or (view.rdma_active is False and not view.efa):
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=sure(view.rdma_active),
        title=f"NCCL_NET_GDR_LEVEL={value.strip()} switches GPUDirect RDMA off",
        why="Data between GPU and NIC takes a detour through host memory.",
        source=_GUIDE,
    )


def _gdr_flush(view: NcclView, value: str) -> Risk | None:
    del view
    if not is_on(value):
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title="NCCL_GDR_FLUSH_DISABLE=1 can give wrong data",
        why="On platforms that need the flush, the GPU may read a buffer before the NIC's data has arrived.",
        source="NVIDIA/nccl sources; undocumented setting",
    )


def _dmabuf(view: NcclView, value: str) -> Risk | None:
    if not is_off(value) or (view.rdma_active is False and not view.efa):
        return None
    return Risk(
        severity=Severity.INFO,
        confidence=Confidence.MEDIUM,
        title="NCCL_DMABUF_ENABLE=0: GPUDirect RDMA now needs the nvidia_peermem module",
        why="Without the module, data between GPU and NIC goes through host memory.",
        source=_GUIDE,
    )


def _async_events(view: NcclView, value: str) -> Risk | None:
    if not is_off(value) or view.rdma_active is False:
        return None
    return Risk(
        severity=Severity.WARNING,
        title="NCCL_IB_RETURN_ASYNC_EVENTS=0: a dead NIC becomes a hang",
        why="NCCL then ignores port-down and fatal events of the NIC instead of ending the job with an error.",
        source=_GUIDE,
    )


def _net_mismatch(view: NcclView, value: str) -> Risk | None:
    del view
    if not is_on(value):
        return None
    return Risk(
        severity=Severity.INFO,
        title="NCCL_IGNORE_NET_MISMATCH=1 lets hosts with unequal NICs start",
        why=(
            "It is the default since 2.30. A host that sees fewer NICs than the others then hangs later instead "
            "of failing at the start."
        ),
        source="NVIDIA/nccl issue 2428",
        advice="Fail at the start instead",
        command="export NCCL_IGNORE_NET_MISMATCH=0",
    )


def _comm_id(view: NcclView, value: str) -> Risk | None:
    del view
    if not value:
        return None
    return Risk(
        severity=Severity.WARNING,
        title="NCCL_COMM_ID is set: communicators fight for one port",
        why="It is meant for programs without a launcher. torch hands out its own ids; with several groups they clash.",
        source="NVIDIA/nccl, src/bootstrap.cc",
    )


def _hostid(view: NcclView, value: str) -> Risk | None:
    if not value or view.several_hosts is False:
        return None
    return Risk(
        severity=Severity.WARNING,
        confidence=Confidence.MEDIUM,
        title="NCCL_HOSTID replaces what tells hosts apart",
        why="Where two hosts have the same value, NCCL takes their ranks for local ones: hang, or shared-memory errors.",
        source="NVIDIA/nccl, src/misc/utils.cc",
        advice="Leave it unset, or make sure that each host has its own value",
    )


NETWORK_RULES = (
    Rule(("NCCL_IB_DISABLE",), _ib_disable),
    Rule(("NCCL_NET",), _net_socket),
    Rule(("NCCL_IB_TIMEOUT",), _ib_timeout),
    Rule(("NCCL_IB_GID_INDEX",), _ib_gid_index),
    Rule(("NCCL_NET_GDR_LEVEL",), _gdr_level),
    Rule(("NCCL_GDR_FLUSH_DISABLE",), _gdr_flush),
    Rule(("NCCL_DMABUF_ENABLE",), _dmabuf),
    Rule(("NCCL_IB_RETURN_ASYNC_EVENTS",), _async_events),
    Rule(("NCCL_IGNORE_NET_MISMATCH",), _net_mismatch),
    Rule(("NCCL_COMM_ID",), _comm_id),
    Rule(("NCCL_HOSTID",), _hostid),
)
