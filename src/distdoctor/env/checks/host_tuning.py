"""Kernel settings that cost a training job speed: NUMA balancing, CPU frequency, huge pages, swap."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, NotApplicable, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, SkipCause, Team
from distdoctor.units import GIB, format_bytes

RCCL_SOURCE = "RCCL prints a warning when it is 1 (src/init.cc)"

# With these drivers the governor "powersave" is a normal default that still raises the frequency under load
# (Linux, admin-guide/pm: intel_pstate active mode, amd-pstate EPP mode). With others it pins the lowest one.
DRIVERS_WITH_OWN_POWERSAVE = ("intel_pstate", "amd-pstate-epp", "amd_pstate_epp")

# Less is what an idle host swaps out once and never misses. Our own threshold.
SWAP_WORTH_SAYING = GIB

# Swap in use while this little memory is left means that it is being used now. Our own threshold.
LITTLE_MEMORY_FRACTION = 0.05


def _has_no_gpu(facts: EnvFacts) -> bool:
    """True when it is known that no GPU is here: then these settings hurt no GPU job."""
    gpus = facts.gpus
    return gpus is not None and gpus.devices is not None and not gpus.devices and not gpus.num_pci_gpus


def check_numa_balancing(facts: EnvFacts) -> Sequence[Outcome]:
    """Automatic NUMA balancing on a host with several NUMA nodes and a GPU: info."""
    host = facts.host
    if _has_no_gpu(facts):
        return [NotApplicable(detail="no GPU here")]
    if host is None or host.numa_balancing is None:
        unread = host.unread.get("numa_balancing") if host is not None else None
        if unread is not None and unread.cause is SkipCause.ABSENT and host is not None and host.kernel:
            return [NotApplicable(detail="this kernel has no NUMA balancing")]
        return [missing(facts, "host.numa_balancing")]
    if not host.numa_balancing & 1:
        return [Passed(detail="NUMA balancing is off")]
    if host.numa_nodes is not None and len([node for node in host.numa_nodes if node.cpus]) < 2:
        return [NotApplicable(detail="on, but there is one NUMA node only")]
    return [
        Found(
            title="the kernel moves memory between sockets while the job runs",
            severity=Severity.INFO,
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"kernel.numa_balancing is {host.numa_balancing}",
                    value=host.numa_balancing,
                    expected="0",
                    expected_source=RCCL_SOURCE,
                    source=host.sources.get("numa_balancing"),
                ),
            ),
            explanation=(
                "To see who uses a page, the kernel unmaps it for a moment. On hosts whose ranks are bound to "
                "their GPU's socket this only adds jitter, which every other rank waits for."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Turn it off on GPU hosts, and in /etc/sysctl.d to keep it so",
                    command="sudo sysctl kernel.numa_balancing=0",
                ),
            ),
            cause_class="host:numa",
            fault=Fault.CONFIG,
        )
    ]


def check_governor(facts: EnvFacts) -> Sequence[Outcome]:
    """CPUs held at their lowest frequency: a warning; a driver's own powersave: info."""
    host = facts.host
    if _has_no_gpu(facts):
        return [NotApplicable(detail="no GPU here")]
    if host is None or host.cpu_governors is None:
        unread = host.unread.get("cpu_governors") if host is not None else None
        if unread is not None and unread.cause is SkipCause.ABSENT and host is not None and host.num_cpus:
            return [NotApplicable(detail="the CPUs' frequency is not governed by this kernel")]
        return [missing(facts, "host.cpu_governors")]
    slow = host.cpu_governors.get("powersave", 0)
    if not slow:
        return [
            Passed(detail=", ".join(f"{name} on {count} CPUs" for name, count in host.cpu_governors.items()))
        ]
    driver = host.cpu_frequency_driver
    dynamic = driver in DRIVERS_WITH_OWN_POWERSAVE
    total = sum(host.cpu_governors.values())
    return [
        Found(
            title=(
                f"{slow} of {total} CPUs save power before speed"
                if dynamic or driver is None
                else f"{slow} of {total} CPUs are held at their lowest frequency"
            ),
            severity=Severity.INFO if dynamic or driver is None else Severity.WARNING,
            confidence=Confidence.MEDIUM if dynamic or driver is None else Confidence.HIGH,
            evidence=(
                Evidence(
                    text=f"governor powersave on {slow} CPUs, driver {driver or 'not known'}",
                    value=slow,
                    unit="CPUs",
                    expected="performance",
                    expected_source="Linux, admin-guide/pm/cpufreq and intel_pstate",
                    source=host.sources.get("cpu_governors"),
                ),
            ),
            explanation=(
                "This driver raises the frequency under load, a little later than `performance` would."
                if dynamic
                else "Kernel launches and data loading run on these CPUs; `powersave` of a plain frequency driver "
                "never leaves the lowest frequency."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Choose the performance governor on GPU hosts",
                    command="sudo cpupower frequency-set -g performance",
                ),
            ),
            cause_class="host:cpu_frequency",
            fault=Fault.CONFIG,
        )
    ]


def check_huge_pages(facts: EnvFacts) -> Sequence[Outcome]:
    """Transparent huge pages turned off: info, a lead only. Other settings have no known cost."""
    setting = facts.host.transparent_hugepage if facts.host is not None else None
    if setting is None:
        return [missing(facts, "host.transparent_hugepage")]
    if setting != "never":
        return [Passed(detail=f"transparent huge pages: {setting}")]
    return [
        Found(
            title="programs on this host get no huge memory pages",
            severity=Severity.INFO,
            confidence=Confidence.LOW,
            evidence=(
                Evidence(
                    text="transparent_hugepage/enabled is never",
                    value=setting,
                    expected="madvise (Linux' default) or always",
                    expected_source="AMD ZenDNN user guide, Transparent Huge Pages; Linux, admin-guide/mm/transhuge",
                    source=facts.host.sources.get("transparent_hugepage") if facts.host else None,
                ),
            ),
            explanation=(
                "Large arrays in main memory (data loading, optimizer state on the CPU) then use 4 KiB pages. No "
                "source that we know measures what that costs a training job on GPUs."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="Unless it was turned off on purpose, let programs ask for huge pages",
                    command="echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled",
                ),
            ),
            fault=Fault.CONFIG,
        )
    ]


def check_swap(facts: EnvFacts) -> Sequence[Outcome]:
    """Swap in use: a warning while memory is short, else info above 1 GiB."""
    host = facts.host
    if host is None or host.swap_total_bytes is None:
        return [missing(facts, "host.swap_total_bytes")]
    if host.swap_total_bytes == 0:
        return [NotApplicable(detail="no swap on this host")]
    used = host.swap_used_bytes
    if used is None:
        return [missing(facts, "host.swap_used_bytes")]
    total, available = host.memory_total_bytes, host.memory_available_bytes
    short = total is not None and available is not None and available < total * LITTLE_MEMORY_FRACTION
    if used < SWAP_WORTH_SAYING:
        return [Passed(detail=f"{format_bytes(used)} of swap in use")]
    left = f", {format_bytes(available)} of memory left" if available is not None else ""
    return [
        Found(
            title=f"{format_bytes(used)} of memory was moved to disk (swap)",
            severity=Severity.WARNING if short else Severity.INFO,
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"{format_bytes(used)} of {format_bytes(host.swap_total_bytes)} swap in use{left}",
                    value=used,
                    unit="bytes",
                    expected=f"below {format_bytes(SWAP_WORTH_SAYING)}",
                    expected_source="our own threshold",
                    source=host.sources.get("swap_used_bytes"),
                ),
            ),
            explanation=(
                "Memory is short, and a rank that waits for a page from disk makes all others wait."
                if short
                else "Memory was short at some time; what was moved out comes back slowly when it is touched."
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="See whether pages move now (columns si and so), and who uses the memory",
                    command="vmstat 1 5; ps -eo pid,user,rss,comm --sort=-rss | head",
                ),
            ),
            cause_class="host:swap",
            fault=Fault.HOST,
        )
    ]


NUMA_BALANCING = Check(
    id="numa-balancing", title="automatic NUMA balancing", run=check_numa_balancing, preflight=True
)
GOVERNOR = Check(id="cpu-governor", title="CPU frequency governor", run=check_governor, preflight=True)
HUGE_PAGES = Check(
    id="transparent-hugepage", title="transparent huge pages", run=check_huge_pages, preflight=True
)
SWAP = Check(id="swap-in-use", title="swap", run=check_swap, preflight=True)
