"""Can all ranks meet at MASTER_ADDR and MASTER_PORT? Part of the check of the launch variables."""

from __future__ import annotations

from collections.abc import Mapping

from distdoctor.env.checks.base import Found, Outcome
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

ENV_SOURCE = "PyTorch documentation, torch.distributed: environment variable initialization"


def address_problems(facts: EnvFacts) -> list[Outcome]:
    """What is wrong with MASTER_ADDR and MASTER_PORT as such; where the address leads is another check's subject."""
    environ = facts.variables.environment if facts.variables is not None else {}
    return [*_no_address(environ), *_port(facts, environ)]


def _no_address(environ: Mapping[str, str]) -> list[Outcome]:
    if (
        environ.get("MASTER_ADDR")
        or not environ.get("RANK", "").strip()
        or not environ.get("WORLD_SIZE", "").strip()
    ):
        return []
    if environ["WORLD_SIZE"].strip() == "1":
        return []
    return [
        Found(
            key="no-address",
            title="RANK is set but MASTER_ADDR is not: the ranks do not know where to meet",
            severity=Severity.CRITICAL,
            # A program may pass init_method="tcp://…" or a store of its own.
            confidence=Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=f"RANK={environ['RANK'][:20]}, no MASTER_ADDR",
                    expected="MASTER_ADDR and MASTER_PORT of rank 0",
                    expected_source=ENV_SOURCE,
                    source="environment",
                ),
            ),
            explanation="PyTorch's `env://` start stops with `environment variable MASTER_ADDR expected, but not set`.",
            actions=(
                Action(
                    team=Team.JOB_OWNER,
                    text="Set it in the job script to the first host of the job",
                    command='export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1) MASTER_PORT=29500',
                ),
            ),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
    ]


def _port(facts: EnvFacts, environ: Mapping[str, str]) -> list[Outcome]:
    text = environ.get("MASTER_PORT", "").strip()
    if not text:
        return []
    port = int(text) if text.isdecimal() and len(text) < 7 else None
    if port is None or not 0 < port < 65536:
        return [
            Found(
                key="bad-port",
                title="MASTER_PORT is not a port number",
                severity=Severity.CRITICAL,
                confidence=Confidence.HIGH,
                evidence=(
                    Evidence(text=f"MASTER_PORT=`{text[:20]}`", expected="1 to 65535", source="environment"),
                ),
                explanation="Rank 0 cannot listen on it, and no rank can connect.",
                actions=(Action(team=Team.JOB_OWNER, text="Set a port", command="export MASTER_PORT=29500"),),
                cause_class="config:launch_variables",
                fault=Fault.CONFIG,
            )
        ]
    bounds = facts.host.port_range if facts.host is not None else None
    by_agent = facts.scheduler is not None and facts.scheduler.launcher in ("torchrun", "distdoctor")
    # torchrun chooses a free port itself and already holds it.
    if bounds is None or by_agent or not bounds[0] <= port <= bounds[1]:
        return []
    return [
        Found(
            key="ephemeral-port",
            title=f"MASTER_PORT {port} is one that any program here may be given",
            severity=Severity.INFO,
            confidence=Confidence.LOW,
            evidence=(
                Evidence(
                    text=f"MASTER_PORT={port}; the system hands out {bounds[0]} to {bounds[1]}",
                    value=port,
                    expected=f"outside {bounds[0]}-{bounds[1]}",
                    expected_source="Linux, ip-sysctl: ip_local_port_range",
                    source=facts.host.sources.get("port_range") if facts.host is not None else None,
                ),
            ),
            explanation="Now and then rank 0 finds it taken by somebody's outgoing connection: `Address already in use`.",
            actions=(
                Action(
                    team=Team.JOB_OWNER, text="Choose one below the range", command="export MASTER_PORT=29500"
                ),
            ),
            cause_class="config:launch_variables",
            fault=Fault.CONFIG,
        )
    ]
