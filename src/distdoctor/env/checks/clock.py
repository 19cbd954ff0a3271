"""Is the host's clock synchronised?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.env.checks.base import Check, Found, Outcome, Passed, missing
from distdoctor.env.facts.all import EnvFacts
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team
from distdoctor.units import format_seconds


def check_clock(facts: EnvFacts) -> Sequence[Outcome]:
    """Not synchronised: a warning in a job of several hosts or when chrony itself says so, else info."""
    host = facts.host
    if host is None or host.clock_synchronised is None:
        return [missing(facts, "host.clock_synchronised")]
    source = host.sources.get("clock_synchronised", "")
    if host.clock_synchronised:
        error = host.clock_max_error_s
        within = f", within {format_seconds(error)}" if error is not None else ""
        return [Passed(detail=f"synchronised{within}")]
    by_daemon = "chronyc" in source
    several_hosts = facts.scheduler is not None and (facts.scheduler.num_nodes or 1) > 1
    return [
        Found(
            title="nothing keeps this host's clock right",
            severity=Severity.WARNING if by_daemon or several_hosts else Severity.INFO,
            # PTP daemons and hypervisors may steer the clock without telling the kernel.
            confidence=Confidence.HIGH if by_daemon else Confidence.MEDIUM,
            evidence=(
                Evidence(
                    text=(
                        "chronyd says that it is not synchronised"
                        if by_daemon
                        else "the kernel's clock is marked as not synchronised"
                    ),
                    value=False,
                    expected="synchronised",
                    expected_source="Linux, adjtimex(2): STA_UNSYNC",
                    source=source,
                ),
            ),
            explanation=(
                "Clocks drift by seconds a day. Then logs of several hosts cannot be put in one order, and "
                "certificates and tokens are refused."
                + (
                    ""
                    if by_daemon
                    else " A PTP daemon or the hypervisor may steer the clock unseen by the kernel."
                )
            ),
            actions=(
                Action(
                    team=Team.PLATFORM,
                    text="See what should set the clock, and start it",
                    command="timedatectl; chronyc tracking; systemctl status chronyd systemd-timesyncd phc2sys",
                ),
            ),
            cause_class="host:clock",
            fault=Fault.HOST,
        )
    ]


CHECK = Check(id="clock-unsynchronised", title="clock synchronisation", run=check_clock, preflight=True)
