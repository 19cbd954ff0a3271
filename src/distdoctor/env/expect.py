"""What a site expects of a host: `--expect gpus=8,ib=8,driver=570.`, a site file, or a good host's report.

Pure: facts and expectations in, findings out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distdoctor.env.catalog.relevance import env_relevance
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.flatten import flat_rows
from distdoctor.errors import UsageError
from distdoctor.report.differences import Relevance, find_differences
from distdoctor.report.model import (
    Action,
    CheckResult,
    CheckState,
    Confidence,
    Evidence,
    Fault,
    Finding,
    Report,
    Scalar,
    Scope,
    Severity,
    SkipCause,
    Skipped,
    Team,
)

EXPECTED_ID = "host-not-as-expected"
BASELINE_ID = "host-unlike-baseline"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Expectation:
    """How one expected value is compared."""

    what: str
    read: Callable[[EnvFacts], Scalar]
    agrees: Callable[[Scalar, str], bool]
    fault: Fault
    how: str
    """What supplies the value when it was not seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The outcome of comparing a host with what was expected."""

    findings: tuple[Finding, ...]
    checks: tuple[CheckResult, ...]
    skipped: tuple[Skipped, ...]


NOTHING_EXPECTED = Expected(findings=(), checks=(), skipped=())


def parse_expect(text: str) -> dict[str, str]:
    """`gpus=8,ib=8,driver=570.` as a mapping. Raises UsageError for an unknown or malformed item."""
    wanted: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = item.partition("=")
        if not equals or not value:
            raise UsageError(f"`{item}` in --expect is not of the form name=value")
        if wanted.get(name, value) != value:
            raise UsageError(f"--expect names `{name}` twice: {wanted[name]} and {value}")
        wanted[name] = value
    if not wanted:
        raise UsageError("--expect is empty", hint=f"for example gpus=8; known: {', '.join(_EXPECTATIONS)}")
    check_expect_names(wanted, "--expect")
    return wanted


def check_expect_names(wanted: Mapping[str, str], where: str) -> None:
    """Raises UsageError when a name is unknown, or a number is none."""
    for name, value in wanted.items():
        if name not in _EXPECTATIONS:
            raise UsageError(f"{where} does not know `{name}`", hint=f"known: {', '.join(_EXPECTATIONS)}")
        if _EXPECTATIONS[name].agrees is _equal_number and not _is_number(value):
            raise UsageError(f"{where}: `{name}` wants a number, not `{value}`")


def compare_with_expected(facts: EnvFacts, wanted: Mapping[str, str], where: str) -> Expected:
    """Findings for every expected value that the host does not have; what could not be seen is skipped."""
    findings: list[Finding] = []
    checks: list[CheckResult] = []
    skipped: list[Skipped] = []
    hosts = (facts.host_name,) if facts.host_name else ()
    for name, value in wanted.items():
        rule = _EXPECTATIONS[name]
        seen = rule.read(facts)
        title = f"expected {rule.what}"
        if seen is None:
            reason = f"{rule.what} could not be read"
            skipped.append(
                Skipped(
                    id=EXPECTED_ID,
                    what=title,
                    cause=SkipCause.FAILED,
                    reason=reason,
                    how=rule.how,
                    hosts=hosts,
                    essential=True,
                )
            )
            checks.append(
                CheckResult(id=f"{EXPECTED_ID}:{name}", title=title, state=CheckState.SKIPPED, detail=reason)
            )
        elif rule.agrees(seen, value):
            checks.append(
                CheckResult(
                    id=f"{EXPECTED_ID}:{name}", title=title, state=CheckState.PASSED, detail=str(seen)
                )
            )
        else:
            findings.append(_unexpected(name, rule, seen, value, where=where, hosts=hosts))
            checks.append(
                CheckResult(
                    id=f"{EXPECTED_ID}:{name}",
                    title=title,
                    state=CheckState.FOUND,
                    detail=f"{seen}, expected {value}",
                )
            )
    return Expected(findings=tuple(findings), checks=tuple(checks), skipped=tuple(skipped))


def compare_with_baseline(facts: EnvFacts, baseline: Report, where: str) -> Expected:
    """Findings for facts that differ from a good host's report, where the difference matters."""
    mine = {key: value for key, value, _, _ in flat_rows(facts) if value is not None}
    good = {fact.key: fact.value for fact in reversed(baseline.facts) if fact.value is not None}
    differences = find_differences({"this host": mine, "baseline": good}, _baseline_relevance)
    hosts = (facts.host_name,) if facts.host_name else ()
    findings = tuple(
        Finding(
            id=BASELINE_ID,
            severity=each.relevance.severity,
            confidence=Confidence.MEDIUM,
            title=f"{each.key} is {mine.get(each.key, 'not set')}, on the good host {good.get(each.key, 'not set')}"[
                :80
            ],
            fingerprint=f"{BASELINE_ID}:{each.key}",
            evidence=(
                Evidence(
                    text=f"{each.key}: {mine.get(each.key, 'not set')}",
                    value=mine.get(each.key),
                    expected=str(good.get(each.key, "not set")),
                    expected_source=where,
                ),
            ),
            explanation=each.relevance.consequence[:1].upper() + each.relevance.consequence[1:] + ".",
            actions=(
                Action(team=Team.PLATFORM, text="Bring the host to the baseline, or take a new baseline"),
            ),
            scope=Scope(hosts=hosts),
            fault=Fault.HOST,
        )
        for each in differences
    )
    state = CheckState.FOUND if findings else CheckState.PASSED
    return Expected(
        findings=findings,
        checks=(
            CheckResult(
                id=BASELINE_ID, title="likeness to the baseline", state=state, detail=where, hosts=hosts
            ),
        ),
        skipped=(),
    )


def _baseline_relevance(key: str) -> Relevance | None:
    """Facts about the host; a variable of the good host's shell is no baseline for a prolog."""
    if key.startswith(("variables.", "torch", "python.", "nccl.", "scheduler.", "process.")):
        return None
    return env_relevance(key)


def _unexpected(
    name: str, rule: _Expectation, seen: Scalar, value: str, *, where: str, hosts: tuple[str, ...]
) -> Finding:
    return Finding(
        id=EXPECTED_ID,
        severity=Severity.CRITICAL,
        confidence=Confidence.HIGH,
        title=f"{rule.what}: {seen}, expected {value}"[:80],
        fingerprint=f"{EXPECTED_ID}:{name}",
        evidence=(Evidence(text=f"{rule.what}: {seen}", value=seen, expected=value, expected_source=where),),
        explanation=f"The host does not have what {where} asks for.",
        actions=(
            Action(
                team=Team.PLATFORM, text="Keep jobs off this host until it is known why", command=rule.how
            ),
        ),
        scope=Scope(hosts=hosts),
        fault=rule.fault,
    )


def _num_gpus(facts: EnvFacts) -> int | None:
    gpus = facts.gpus
    if gpus is None:
        return None
    if gpus.devices is not None:
        return sum(not device.lost for device in gpus.devices)
    return gpus.num_proc_gpus if gpus.num_proc_gpus is not None else gpus.num_device_nodes


def _active_ports(link_layer: str | None) -> Callable[[EnvFacts], int | None]:
    def read(facts: EnvFacts) -> int | None:
        ports = facts.network.rdma_ports if facts.network else None
        if ports is None:
            return None
        return sum(port.state == "ACTIVE" and link_layer in (None, port.link_layer) for port in ports)

    return read


def _driver(facts: EnvFacts) -> str | None:
    return (facts.gpus.driver_version or facts.gpus.kernel_module_version) if facts.gpus else None


def _smallest_mtu(facts: EnvFacts) -> int | None:
    ports = facts.network.rdma_ports if facts.network else None
    interfaces = facts.network.interfaces if facts.network else None
    if interfaces is None:
        return None
    rdma_names = {port.netdev for port in ports or ()}
    physical = [each for each in interfaces if not each.is_virtual and each.is_up and each.mtu is not None]
    chosen = [each for each in physical if each.name in rdma_names] or physical
    return min((each.mtu for each in chosen if each.mtu is not None), default=None)


def _smallest_power_limit(facts: EnvFacts) -> float | None:
    devices = facts.gpus.devices if facts.gpus else None
    return min((each.power_limit_w for each in devices or () if each.power_limit_w is not None), default=None)


def _gpu_models(facts: EnvFacts) -> str | None:
    devices = facts.gpus.devices if facts.gpus else None
    names = sorted({each.name for each in devices or () if each.name})
    return ", ".join(names) or None


def _equal_number(seen: Scalar, value: str) -> bool:
    return isinstance(seen, int | float) and float(seen) == float(value)


def _has_prefix(seen: Scalar, value: str) -> bool:
    """ "570." and "570.86" accept 570.86.15; "570" does not accept 5700."""
    text = str(seen)
    return text == value or text.startswith(value if value.endswith(".") else value + ".")


def _contains(seen: Scalar, value: str) -> bool:
    return value.lower().replace("-", " ") in str(seen).lower().replace("-", " ")


def _is_number(text: str) -> bool:
    try:
        return 0 <= float(text) < math.inf
    except ValueError:
        return False


_EXPECTATIONS: dict[str, _Expectation] = {
    "gpus": _Expectation(
        what="usable GPUs", read=_num_gpus, agrees=_equal_number, fault=Fault.GPU, how="nvidia-smi -L"
    ),
    "gpu_type": _Expectation(
        what="GPU model", read=_gpu_models, agrees=_contains, fault=Fault.GPU, how="nvidia-smi -L"
    ),
    "ib": _Expectation(
        what="active InfiniBand ports",
        read=_active_ports("InfiniBand"),
        agrees=_equal_number,
        fault=Fault.NETWORK,
        how="ibstat",
    ),
    "roce": _Expectation(
        what="active RoCE ports",
        read=_active_ports("Ethernet"),
        agrees=_equal_number,
        fault=Fault.NETWORK,
        how="rdma link",
    ),
    "nics": _Expectation(
        what="active RDMA ports",
        read=_active_ports(None),
        agrees=_equal_number,
        fault=Fault.NETWORK,
        how="rdma link",
    ),
    "driver": _Expectation(
        what="NVIDIA driver",
        read=_driver,
        agrees=_has_prefix,
        fault=Fault.SOFTWARE,
        how="cat /proc/driver/nvidia/version",
    ),
    "mtu": _Expectation(
        what="smallest MTU", read=_smallest_mtu, agrees=_equal_number, fault=Fault.NETWORK, how="ip -br link"
    ),
    "power_limit_w": _Expectation(
        what="smallest GPU power limit (W)",
        read=_smallest_power_limit,
        agrees=_equal_number,
        fault=Fault.GPU,
        how="nvidia-smi -q -d POWER",
    ),
}
