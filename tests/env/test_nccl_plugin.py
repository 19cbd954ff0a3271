"""Network plugins: EFA without one, one that is named and missing, none needed."""

from __future__ import annotations

from distdoctor.env.checks.base import Found, NotApplicable, NotSeen, Passed
from distdoctor.env.checks.nccl_plugin import check_plugin
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.nccl import NcclFacts, NcclPlugin
from distdoctor.env.facts.network import NetworkFacts, RdmaPort
from distdoctor.env.facts.scheduler import SchedulerFacts
from distdoctor.env.facts.variables import VariableFacts
from distdoctor.report.model import Severity

EFA = RdmaPort(device="rdmap0s6", port=1, state="ACTIVE", is_efa=True)
MISSING = NcclPlugin(name="libnccl-net.so", path=None, wanted_by="default name")
PRESENT = NcclPlugin(
    name="libnccl-net.so", path="/opt/amazon/ofi-nccl/lib/libnccl-net.so", wanted_by="default name"
)


def facts(
    *plugins: NcclPlugin, ports: tuple[RdmaPort, ...] | None = (), hosts: int = 2, **environment: str
) -> EnvFacts:
    return EnvFacts(
        nccl=NcclFacts(plugins=plugins),
        variables=VariableFacts(environment=environment),
        network=None if ports is None else NetworkFacts(rdma_ports=ports),
        scheduler=SchedulerFacts(num_nodes=hosts),
    )


def test_efa_without_a_plugin_is_critical_on_two_hosts() -> None:
    (found,) = check_plugin(facts(MISSING, ports=(EFA,)))
    assert isinstance(found, Found)
    assert found.severity is Severity.CRITICAL


def test_efa_without_a_plugin_is_a_warning_on_one_host() -> None:
    (found,) = check_plugin(facts(MISSING, ports=(EFA,), hosts=1))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_efa_with_the_plugin_switched_off_is_told() -> None:
    (found,) = check_plugin(facts(PRESENT, ports=(EFA,), NCCL_NET_PLUGIN="none"))
    assert isinstance(found, Found)
    assert found.key == "switched-off"


def test_a_plugin_that_is_named_and_missing_is_a_warning() -> None:
    plugin = NcclPlugin(name="sharp", path=None, wanted_by="NCCL_NET_PLUGIN")
    (found,) = check_plugin(facts(plugin, NCCL_NET_PLUGIN="sharp"))
    assert isinstance(found, Found)
    assert found.severity is Severity.WARNING


def test_efa_with_its_plugin_passes() -> None:
    (outcome,) = check_plugin(facts(PRESENT, ports=(EFA,)))
    assert isinstance(outcome, Passed)


def test_no_efa_and_no_name_needs_none() -> None:
    (outcome,) = check_plugin(facts(MISSING))
    assert isinstance(outcome, NotApplicable)


def test_unread_ports_or_libraries_are_not_passed() -> None:
    assert isinstance(check_plugin(facts(MISSING, ports=None))[0], NotSeen)
    assert isinstance(check_plugin(EnvFacts())[0], NotSeen)
