"""Which settings did the environment make, and which of them cost speed?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from distdoctor.nccl_bench.analysis.log_hosts import hosts_of
from distdoctor.nccl_bench.analysis.log_networks import net_routes, socket_use
from distdoctor.nccl_bench.analysis.log_platform import expects_nvls
from distdoctor.nccl_bench.analysis.override_rules import GUIDE, OverrideRule, judge, malformed
from distdoctor.nccl_bench.checks.base import BenchCheck, Found, Outcome, Passed
from distdoctor.nccl_bench.checks.log_view import log_or_reason, unsaid
from distdoctor.nccl_bench.facts.bench import BenchFacts
from distdoctor.nccl_bench.facts.nccl_log import NcclLog, Override
from distdoctor.report.model import Action, Confidence, Evidence, Fault, Severity, Team

# Settings of the log itself change nothing else.
_LOGGING = ("NCCL_DEBUG", "RCCL_LOG")

# Lists of settings that are shown; the rest is counted. Our own choice.
_MAX_SHOWN = 20


def check_overrides(facts: BenchFacts) -> Sequence[Outcome]:
    """One finding for each costly or malformed setting, and one info that lists the others."""
    log = log_or_reason(facts)
    if not isinstance(log, NcclLog):
        return [log]
    settings = [each for each in log.overrides if not each.name.startswith(_LOGGING)]
    if not settings and not log.invalid_settings:
        # NCCL prints settings by default, beside its version and its communicators; an excerpt may lack them.
        if log.version and log.comms:
            return [Passed(detail="the log shows no setting made by the environment")]
        return [unsaid(facts, "which settings the environment makes")]
    outcomes: list[Outcome] = []
    told: set[str] = set()
    for name, values in _by_name(settings).items():
        found = _judged(facts, log, name, values)
        if found is not None:
            outcomes.append(found)
            told.add(name)
    if log.invalid_settings:
        outcomes.append(_invalid(log))
    others = [each for each in settings if each.name not in told]
    if others:
        outcomes.append(_listed(log, others))
    return outcomes


def _by_name(settings: Sequence[Override]) -> dict[str, list[Override]]:
    grouped: dict[str, list[Override]] = defaultdict(list)
    for each in settings:
        grouped[each.name].append(each)
    return grouped


def _judged(facts: BenchFacts, log: NcclLog, name: str, values: Sequence[Override]) -> Found | None:
    """The finding about one variable: values that differ, a malformed one, or a costly one."""
    wrong = next((text for each in values if (text := malformed(each))), None)
    rules = [rule for each in values if (rule := judge(each))]
    rule = next((each for each in rules if _hurts(facts, log, each)), None)
    differs = len({each.value for each in values}) > 1
    if not (wrong or rule or differs):
        return None
    values_shown = " and ".join(dict.fromkeys(each.value for each in values[:3]))
    reasons = [text for text in (wrong, rule.why if rule else None) if text]
    if differs:
        reasons.insert(0, "processes have different values, or it is set twice")
    serious = wrong or differs or (rule is not None and rule.severity is Severity.WARNING)
    return Found(
        key=name,
        title=_title(name, values_shown, wrong=wrong, differs=differs),
        severity=Severity.WARNING if serious else Severity.INFO,
        confidence=rule.confidence if rule and not (wrong or differs) else Confidence.MEDIUM,
        evidence=_evidence(log, values, rule),
        explanation="; ".join(reasons) + ".",
        actions=(
            Action(
                team=Team.JOB_OWNER,
                text=f"Find where {name} is set (job script, image, /etc/nccl.conf, ~/.nccl.conf) and try without it",
                command=f"unset {name}",
            ),
        ),
        cause_class="config:variable_risky",
        fault=Fault.CONFIG,
    )


def _title(name: str, value: str, *, wrong: str | None, differs: bool) -> str:
    if differs:
        text = f"{name} has different values: {value}"
    elif wrong:
        text = f"{name} is malformed: {value}"
    else:
        text = f"{name} is set to {value}, which can cost speed"
    return text if len(text) <= 80 else text[:79] + "…"


def _hurts(facts: BenchFacts, log: NcclLog, rule: OverrideRule) -> bool:
    """Whether what the rule needs is so, or at least not known to be otherwise."""
    if rule.needs == "several hosts":
        return hosts_of(facts).several is not False
    if rule.needs == "sockets":
        carried = bool(log.networks) and socket_use(log) is None
        return not carried and hosts_of(facts).several is not False
    if rule.needs == "nvls":
        return expects_nvls(facts) is True
    if rule.needs == "gpudirect missing":
        routes = net_routes(log)
        return not (routes and all(route.gpudirect for route in routes))
    return True


def _evidence(log: NcclLog, values: Sequence[Override], rule: OverrideRule | None) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(
            text=f"{each.name} set by environment to {each.value}",
            value=each.value,
            expected="not set" if rule else None,
            expected_source=(rule.source if rule else None),
            source=each.where or log.origin,
        )
        for each in values[:4]
    )


def _invalid(log: NcclLog) -> Found:
    return Found(
        key="invalid",
        title="NCCL ignores a setting whose value it cannot read",
        severity=Severity.WARNING,
        confidence=Confidence.HIGH,
        evidence=tuple(
            Evidence(text=text, source=log.place_of("invalid"), expected_source=GUIDE)
            for text in log.invalid_settings[:5]
        ),
        explanation="The variable is set, and the default is used: what somebody wanted does not happen.",
        actions=(Action(team=Team.JOB_OWNER, text="Correct the value, or remove the variable"),),
        cause_class="config:variable_risky",
        fault=Fault.CONFIG,
    )


def _listed(log: NcclLog, settings: Sequence[Override]) -> Found:
    plural = "s" if len(settings) > 1 else ""
    return Found(
        key="list",
        title=f"{len(settings)} NCCL setting{plural} made by the environment",
        severity=Severity.INFO,
        confidence=Confidence.HIGH,
        evidence=tuple(
            Evidence(text=f"{each.name}={each.value}", source=each.where or log.origin)
            for each in settings[:_MAX_SHOWN]
        ),
        explanation=(
            "NCCL finds most of these by itself; what was set for another machine or version stays behind."
            + (f" {len(settings) - _MAX_SHOWN} more are in the log." if len(settings) > _MAX_SHOWN else "")
        ),
        actions=(),
        cause_class=None,
        fault=Fault.CONFIG,
    )


CHECK = BenchCheck(id="nccl-log-overrides", title="settings made by the environment", run=check_overrides)
