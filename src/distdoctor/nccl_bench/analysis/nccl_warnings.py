"""What NCCL's warnings mean, and whose they are: one rule a kind of failure, causes before consequences.

Texts: NVIDIA/nccl 2.4 to 2.30 (WARN in src/), RCCL; numbers of work completions: enum ibv_wc_status of rdma-core.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from distdoctor.nccl_bench.facts.nccl_log import LoggedWarning
from distdoctor.report.model import Confidence, Fault, Severity, Team


@dataclass(frozen=True, slots=True, kw_only=True)
class WarningRule:
    """One kind of failure."""

    key: str
    pattern: re.Pattern[str]
    title: str
    meaning: str
    severity: Severity
    fault: Fault
    team: Team
    action: str
    command: str | None = None
    confidence: Confidence = Confidence.HIGH
    cause_class: str | None = None
    is_consequence: bool = False
    """Follows a failure elsewhere: less sure when a cause stands beside it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetWarning:
    """The lines that meet one rule."""

    rule: WarningRule
    lines: tuple[LoggedWarning, ...]

    @property
    def only_retries(self) -> bool:
        """NCCL tried again each time: at the start of a job that is usual until the last rank is up."""
        return all("retrying" in line.text for line in self.lines)


def _status(*numbers: int) -> str:
    """A failed work completion by number, in the wordings of 2.4 to 2.30."""
    choices = "|".join(str(number) for number in numbers)
    return rf"(?:with (?:error |status=)(?:\w+\()?(?:{choices})\b)"


def _rule(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)


_PORTS = "ibstatus; rdma link; ethtool -S <interface> | grep -Ei 'discard|pause|err'"

# NCCL writes this as a warning when it gives up, and adds "Proceeding without NVLS" when it goes on.
FATAL_NVLS = r"Failed to bind NVLink SHARP(?!.*Proceeding without)"

RULES: tuple[WarningRule, ...] = (
    WarningRule(
        key="duplicate-gpu",
        pattern=_rule(r"Duplicate GPU detected"),
        title="Two ranks use the same GPU",
        meaning="NCCL needs one GPU for each rank; every process took the same one.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.JOB_OWNER,
        action="Set the device from the local rank before the process group is made",
        command='torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))',
        cause_class="config:duplicate_gpu",
    ),
    WarningRule(
        key="shared-memory",
        pattern=_rule(
            r"(?:extend|creat\w*|map|attach|opening|allocat\w*).{0,80}(?:/dev/shm|shared memory)|"
            r"/dev/shm.{0,80}(?:failed|No space)|(?:fallocate|ftruncate).{0,40}No space left"
        ),
        title="NCCL cannot make its files in shared memory (/dev/shm)",
        meaning="/dev/shm is full or too small; Docker's default is 64 MiB.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.PLATFORM,
        action="Give the container more shared memory",
        command="df -h /dev/shm   # docker run --shm-size=16g …",
        cause_class="host:shm_full",
    ),
    WarningRule(
        key="memlock",
        pattern=_rule(
            r"ibv_(?:reg|create)\w* failed.{0,60}(?:Cannot allocate memory|error 12)|ibv_reg_mr\w* failed"
        ),
        title="A NIC cannot register memory",
        meaning="The limit of locked memory is too low, or GPU memory cannot be registered with this NIC's driver.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.PLATFORM,
        action="Raise the limit of locked memory for the job; see whether nvidia_peermem is loaded",
        command="ulimit -l; lsmod | grep peermem   # docker run --ulimit memlock=-1",
        confidence=Confidence.MEDIUM,
        cause_class="host:memlock",
    ),
    WarningRule(
        key="files",
        pattern=_rule(r"Too many open files"),
        title="The process has too many open files",
        meaning="NCCL opens several descriptors for each peer and channel.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.PLATFORM,
        action="Raise the limit of open files",
        command="ulimit -n   # 65536 or more for large jobs",
        cause_class="host:nofile",
    ),
    WarningRule(
        key="interface",
        pattern=_rule(
            r"no (?:socket|usable listening) interface|No (?:IP )?interface found(?! in the same)|"
            r"address.{0,40}with family \d+ is neither AF_INET"
        ),
        title="NCCL finds no network interface that it may use",
        meaning="NCCL_SOCKET_IFNAME matches no interface of this host, or none has an address.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.JOB_OWNER,
        action="Compare NCCL_SOCKET_IFNAME with the interfaces of this host",
        command="ip -br addr; env | grep IFNAME",
        cause_class="config:socket_ifname",
    ),
    WarningRule(
        key="network-name",
        pattern=_rule(r"network \S+ not found"),
        title="The network that NCCL_NET names is not there",
        meaning="NCCL_NET asks for a network whose plugin is not loaded.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.JOB_OWNER,
        action="Install the plugin, or remove the variable",
        command="unset NCCL_NET",
        cause_class="network:plugin_missing",
    ),
    WarningRule(
        key="libibverbs",
        pattern=_rule(r"(?:open|load)\w* libibverbs"),
        title="libibverbs is missing: NCCL cannot use InfiniBand or RoCE",
        meaning=(
            "On one host this means nothing. Between hosts with RDMA NICs NCCL then uses TCP sockets; a container "
            "image without rdma-core looks like that."
        ),
        severity=Severity.INFO,
        fault=Fault.SOFTWARE,
        team=Team.PLATFORM,
        action="Put rdma-core's libraries into the image",
        command="ldconfig -p | grep libibverbs   # apt-get install libibverbs1 ibverbs-providers",
        cause_class="network:socket_fallback",
    ),
    WarningRule(
        key="rdma-device",
        pattern=_rule(
            r"ibv_(?:open_device|get_device_list|query_(?:device|port))\w* failed|NET/IB ?: Unable to open device"
        ),
        title="An RDMA device is there and cannot be opened",
        meaning=(
            "The kernel shows the device and the process may not use it; a container without /dev/infiniband looks "
            "like that. NCCL goes on without it, in the end over TCP sockets."
        ),
        severity=Severity.WARNING,
        fault=Fault.CONFIG,
        team=Team.PLATFORM,
        action="Give the container the devices, and see whether it can use them",
        command="ls -l /dev/infiniband; ibv_devinfo   # docker run --device=/dev/infiniband --ulimit memlock=-1",
        cause_class="network:socket_fallback",
    ),
    WarningRule(
        key="plugin",
        pattern=_rule(
            r"(?:NET/|plugin).{0,80}(?:initialization failed|initializing plugin failed|failed to initialize|"
            r"unable to (?:find|initialize|open)|could not find any (?:optimal )?provider)"
        ),
        title="A network plugin was found and could not start",
        meaning="NCCL goes on with another network, in the end with TCP sockets: on EFA and the like that is very slow.",
        severity=Severity.WARNING,
        fault=Fault.SOFTWARE,
        team=Team.PLATFORM,
        action="See whether the NICs are in the container and the plugin fits driver and libfabric",
        command="fi_info -p efa; ls /dev/infiniband; ldconfig -p | grep -E 'libfabric|nccl-net'",
        cause_class="network:plugin_missing",
    ),
    WarningRule(
        key="version",
        pattern=_rule(
            r"Mismatched NCCL version|NCCL version mismatch|NCCL library is (?:too old|not backwards)"
        ),
        title="Ranks run different versions of NCCL",
        meaning="NCCL does not connect ranks of different versions.",
        severity=Severity.CRITICAL,
        fault=Fault.SOFTWARE,
        team=Team.PLATFORM,
        action="Use one image on all hosts; see which library is loaded",
        command="python -c 'import torch; print(torch.cuda.nccl.version())'",
        cause_class="env:nccl_version_skew",
    ),
    WarningRule(
        key="algorithm",
        pattern=_rule(r"no algorithm/protocol available"),
        title="The settings leave no algorithm for a collective",
        meaning="NCCL_ALGO or NCCL_PROTO allows nothing that can do it; since 2.24 Ring is no longer added.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.JOB_OWNER,
        action="Remove the variables",
        command="unset NCCL_ALGO NCCL_PROTO",
        cause_class="config:variable_contradiction",
    ),
    WarningRule(
        key="link-layers",
        pattern=_rule(
            r"(?:connect|merge) incompatible devices|is incompatible with the local|different link_layer"
        ),
        title="InfiniBand and Ethernet ports were joined, which cannot work",
        meaning="One rank's NIC is InfiniBand, its peer's is Ethernet.",
        severity=Severity.CRITICAL,
        fault=Fault.CONFIG,
        team=Team.JOB_OWNER,
        action="Name the ports of one fabric in NCCL_IB_HCA",
        command="ibstatus | grep -E 'device|link_layer'",
        cause_class="config:hca_choice",
    ),
    WarningRule(
        key="nvlink-p2p",
        pattern=_rule(r"P2P is disabled between NVLINK connected GPUs"),
        title="The driver refuses peer access between GPUs that NVLink joins",
        meaning="NCCL says that this is probably a hardware issue.",
        severity=Severity.CRITICAL,
        fault=Fault.HOST,
        team=Team.HARDWARE,
        action="Look at NVLink state and the kernel log; reset the GPUs or the host",
        command="nvidia-smi nvlink -s; nvidia-smi topo -p2p n; sudo dmesg | grep -i xid",
        cause_class="gpu:nvlink",
    ),
    WarningRule(
        key="peer-access",
        pattern=_rule(
            r"peer access is not supported|failed to open CUDA IPC handle|cudaIpc(?:Open|Get)MemHandle.{0,60}fail"
        ),
        title="GPUs of a host cannot reach each other's memory",
        meaning=(
            "NCCL chose direct copies between two GPUs and the driver refuses them: GPUs that cannot do it, or "
            "processes that do not see the same GPUs."
        ),
        severity=Severity.CRITICAL,
        fault=Fault.HOST,
        team=Team.PLATFORM,
        action="See which pairs may copy directly, and try once through host memory",
        command="nvidia-smi topo -p2p r; NCCL_P2P_DISABLE=1 <the same job>",
        confidence=Confidence.MEDIUM,
        cause_class="gpu:p2p_off",
    ),
    WarningRule(
        key="nvls-bind",
        pattern=_rule(FATAL_NVLS),
        title="GPUs cannot join the NVSwitch's reduction (NVLS): the job fails",
        meaning=(
            "As a warning, and not as information, this line ends the job. NCCL names the cause itself: the Fabric "
            "Manager or the NVSwitches are not in order. Plain copies over NVLink may look well all the same."
        ),
        severity=Severity.CRITICAL,
        fault=Fault.HOST,
        team=Team.HARDWARE,
        action="Look at the fabric's state, restart the Fabric Manager or the host; without NVLS the job may run slower",
        command="nvidia-smi -q | grep -A4 -i fabric; systemctl status nvidia-fabricmanager   # meanwhile NCCL_NVLS_ENABLE=0",
        confidence=Confidence.MEDIUM,
        cause_class="gpu:nvls_off",
    ),
    WarningRule(
        key="imex",
        pattern=_rule(r"MNNVL .{0,60}not working"),
        title="NVLink between hosts is there but does not work (IMEX)",
        meaning="The IMEX service or its channel is missing, so hosts of a rack are joined by the network alone.",
        severity=Severity.WARNING,
        fault=Fault.HOST,
        team=Team.PLATFORM,
        action="See whether IMEX runs on all hosts and the job has a channel",
        command="nvidia-imex-ctl -N; ls /dev/nvidia-caps-imex-channels",
        cause_class="env:imex",
    ),
    WarningRule(
        key="cuda",
        pattern=_rule(r"Cuda failure|CUDA (?:error|failure)|Failed to CUDA"),
        title="A CUDA call of NCCL failed",
        meaning="The GPU or its driver refused: out of memory, a fault of the GPU, or an earlier kernel that crashed.",
        severity=Severity.CRITICAL,
        fault=Fault.GPU,
        team=Team.HARDWARE,
        action="Look for Xid lines of this GPU; if there are none, the job's own kernels come first",
        command="sudo dmesg -T | grep -i xid; nvidia-smi",
        confidence=Confidence.MEDIUM,
        cause_class="gpu",
    ),
    WarningRule(
        key="sizes",
        pattern=_rule(
            r"message truncated|collective mismatch|Mismatched collective|mismatch in rank count|"
            r"mismatch in info from procs"
        ),
        title="Ranks disagree about a collective: sizes, order or settings differ",
        meaning="Some ranks call other collectives or sizes, or run with other NCCL_ settings than the rest.",
        severity=Severity.CRITICAL,
        fault=Fault.USER_CODE,
        team=Team.JOB_OWNER,
        action="See which collective each rank is in; compare NCCL_ variables over ranks",
        command="TORCH_DISTRIBUTED_DEBUG=DETAIL TORCH_NCCL_TRACE_BUFFER_SIZE=2000 torchrun …",
        confidence=Confidence.MEDIUM,
    ),
    WarningRule(
        key="rdma-access",
        pattern=_rule(_status(4, 8, 9, 10, 11)),
        title="RDMA was refused access to memory",
        meaning=(
            "A NIC may not read or write the memory that NCCL registered: GPUDirect registered it and it does not "
            "work (peermem, IOMMU, ACS, virtual machine), or a NIC that is not meant for traffic between hosts was "
            "chosen."
        ),
        severity=Severity.CRITICAL,
        fault=Fault.HOST,
        team=Team.PLATFORM,
        action="Try once without GPUDirect: if that works, peermem, IOMMU or ACS is at fault",
        command="NCCL_NET_GDR_LEVEL=LOC <the same job>",
        confidence=Confidence.MEDIUM,
        cause_class="network:rdma_access",
    ),
    WarningRule(
        key="rdma-timeout",
        pattern=_rule(_status(12, 13)),
        title="A NIC got no answer from the other host (RDMA retries exhausted)",
        meaning=(
            "Packets were lost or not answered: a link or switch fault, a fabric that drops (RoCE without PFC or "
            "ECN), a wrong GID, or the other process had ended."
        ),
        severity=Severity.CRITICAL,
        fault=Fault.NETWORK,
        team=Team.NETWORK,
        action="Look at both ports of the pair and at the switch between them; first see whether the peer was alive",
        command=_PORTS,
        confidence=Confidence.MEDIUM,
        cause_class="network:unreachable_peer",
    ),
    WarningRule(
        key="queue-pair",
        pattern=_rule(r"ibv_modify_qp failed"),
        title="A NIC could not connect to its peer (ibv_modify_qp failed)",
        meaning=(
            "With RoCE the peer's address was not resolved or the GID index differs; with InfiniBand the subnet or "
            "partition differs, or the port is down."
        ),
        severity=Severity.CRITICAL,
        fault=Fault.NETWORK,
        team=Team.NETWORK,
        action="See whether the ports reach each other and have the same kind of GID",
        command="show_gids; rdma link; ibstatus",
        confidence=Confidence.MEDIUM,
        cause_class="network:roce_gid",
    ),
    WarningRule(
        key="port-event",
        pattern=_rule(r"async (?:fatal |error )?event|marked as failed|catastrophic|GID table changed"),
        title="A NIC reported an event: its port or queues changed state",
        meaning="The port went down or came back, or the NIC reported an error of its own.",
        severity=Severity.WARNING,
        fault=Fault.NETWORK,
        team=Team.NETWORK,
        action="Look at the port's counters and the kernel log around that time",
        command="sudo dmesg -T | grep -Ei 'mlx5|bnxt|link'; ibstatus",
        confidence=Confidence.MEDIUM,
        cause_class="network:link_down",
    ),
    WarningRule(
        key="refused",
        pattern=_rule(r"Connection refused"),
        title="A rank's connection was refused by another host",
        meaning="Nobody listens at that address: the other process ended or never came up, or the address is not its own.",
        severity=Severity.CRITICAL,
        fault=Fault.UNKNOWN,
        team=Team.JOB_OWNER,
        action="See whether the peer's process was alive, and which interface its address belongs to",
        command="ip -br addr   # on the peer; then NCCL_SOCKET_IFNAME='=<card>'",
        confidence=Confidence.MEDIUM,
        cause_class="network:unreachable_peer",
    ),
    WarningRule(
        key="unreachable",
        pattern=_rule(
            r"No route to host|Network is unreachable|Host is unreachable|Connection timed out|exceeded timeouts|same subnet as remote"
        ),
        title="Another host cannot be reached over the network",
        meaning="A firewall, a security group or a wrong interface stands between the hosts.",
        severity=Severity.CRITICAL,
        fault=Fault.NETWORK,
        team=Team.NETWORK,
        action="Try the route to the peer's address, and allow all ports between the hosts",
        command="ip route get <peer>; nc -zv <peer> <port>",
        confidence=Confidence.MEDIUM,
        cause_class="network:unreachable_peer",
    ),
    WarningRule(
        key="rails",
        pattern=_rule(r"mismatched physical devices between local"),
        title="A NIC talks to a NIC of another number on the other host",
        meaning="Traffic leaves its rail and crosses the upper switches.",
        severity=Severity.WARNING,
        fault=Fault.CONFIG,
        team=Team.NETWORK,
        action="See whether all hosts have the same NICs in the same order",
        command="ls -l /sys/class/infiniband",
        confidence=Confidence.MEDIUM,
        cause_class="config:hca_choice",
    ),
    WarningRule(
        key="numa-balancing",
        pattern=_rule(r"NUMA auto balancing|iommu=pt"),
        title="A kernel setting of this host disturbs communication",
        meaning="NUMA balancing moves pages under the GPU; without iommu=pt every DMA is translated.",
        severity=Severity.WARNING,
        fault=Fault.HOST,
        team=Team.PLATFORM,
        action="Change the setting that the line names",
        command="sudo sysctl kernel.numa_balancing=0   # and iommu=pt on the kernel's command line",
        cause_class="host:numa",
    ),
    WarningRule(
        key="peer-gone",
        pattern=_rule(
            r"Connection closed by remote peer|Connection reset by peer|"
            r"remote process exited|Broken pipe|with (?:error |status=)(?:\w+\()?5\b"
        ),
        title="Another rank closed its connection: it ended first",
        meaning="This rank is a witness, not the cause: look for the rank that ended before.",
        severity=Severity.WARNING,
        fault=Fault.UNKNOWN,
        team=Team.JOB_OWNER,
        action="Find the first error among all ranks",
        command="grep -n -m1 -iE 'error|killed|Traceback|Xid' <logs of all ranks>",
        confidence=Confidence.MEDIUM,
        is_consequence=True,
    ),
    WarningRule(
        key="rdma-other",
        pattern=_rule(r"Got completion (?:from peer|with error)"),
        title="An RDMA operation failed",
        meaning="The NIC reported a failed transfer; the status tells which end refused.",
        severity=Severity.CRITICAL,
        fault=Fault.NETWORK,
        team=Team.NETWORK,
        action="Look at both ports of the pair",
        command=_PORTS,
        confidence=Confidence.MEDIUM,
    ),
    WarningRule(
        key="system-error",
        pattern=_rule(
            r"unhandled (?:system|cuda) error|internal error|Failed to execute operation|Proxy Call to rank|"
            r"Socket (?:recv|send) failed"
        ),
        title="NCCL stopped with an error whose cause stands elsewhere in the log",
        meaning="The line only says that a call failed; lines before it, or other ranks, tell which.",
        severity=Severity.WARNING,
        fault=Fault.UNKNOWN,
        team=Team.JOB_OWNER,
        action="Read the warnings before it on every rank",
        command="grep -n 'NCCL WARN' <logs of all ranks> | head",
        confidence=Confidence.MEDIUM,
        is_consequence=True,
    ),
)

# Warnings about NVLS are nccl-log-nvls's, but for the one that ends the job.
_ELSEWHERE = re.compile(rf"^(?!.*{FATAL_NVLS}).*(?:NVLink SHARP|\bNVLS\b)", re.DOTALL)

# Words of a call that did not succeed, whatever it was.
_FAILED = re.compile(
    r"\bfail(?:s|ed|ure)?\b|\berrors?\b|\bunable to\b|\bc(?:an|ould) ?not\b|\binvalid\b|\btimed? ?out\b|"
    r"\bunsupported\b|\bnot supported\b|\bno space\b|\bdenied\b",
    re.IGNORECASE,
)


# What did not work, and NCCL has another way.
_WENT_ON = re.compile(
    r"\binstead\b|\bfall(?:s|ing)? ?back\b|\bproceeding\b|\bignor(?:ed|ing)\b|\bretrying\b", re.IGNORECASE
)


def tells_of_failure(line: LoggedWarning) -> bool:
    """The text of a warning that no rule knows speaks of something that did not work, and of no other way."""
    return bool(_FAILED.search(line.text)) and not _WENT_ON.search(line.text)


def classify(lines: Sequence[LoggedWarning]) -> tuple[tuple[MetWarning, ...], tuple[LoggedWarning, ...]]:
    """Lines by rule, in the order of the rules, and the lines that meet none."""
    met: dict[str, list[LoggedWarning]] = {}
    others: list[LoggedWarning] = []
    for line in lines:
        if _ELSEWHERE.search(line.text):
            continue
        rule = next((each for each in RULES if each.pattern.search(line.text)), None)
        if rule is None:
            others.append(line)
        else:
            met.setdefault(rule.key, []).append(line)
    found = tuple(MetWarning(rule=rule, lines=tuple(met[rule.key])) for rule in RULES if rule.key in met)
    return found, tuple(others)
