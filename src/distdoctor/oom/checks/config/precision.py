"""Does the configuration compute in a type that costs twice the memory?"""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.checks.config.base import ConfigCheck, Looks, findings, no_configuration, not_said
from distdoctor.oom.facts.launch import ConfigFacts, Defect
from distdoctor.oom.settings import Precision
from distdoctor.report.checking import Outcome, Passed
from distdoctor.report.model import Severity

LOOKS = Looks(kinds=(Defect.COSTLY_PRECISION,), cause_class="config:precision", unsure=Severity.INFO)

_WORDS = {
    Precision.FP32: "fp32",
    Precision.MIXED: "fp32 parameters, computed in 16 bit",
    Precision.MASTER: "16-bit parameters with an fp32 master copy",
    Precision.PURE16: "everything in 16 bit",
}


def _run(facts: ConfigFacts) -> Sequence[Outcome]:
    precision = facts.joined.precision
    # One file of a job may leave the type to another one.
    settled = precision not in (None, Precision.FP32) and len(facts.configs) > 1
    found = [] if settled else findings(facts, LOOKS)
    found = found or no_configuration(facts)
    if found:
        return found
    if precision is None:
        return [
            not_said(
                "no file says in which type the job computes",
                how="give `--precision …`, or the trainer's arguments",
            )
        ]
    return [Passed(detail=_WORDS[precision])]


CHECK = ConfigCheck(id="oom-config-precision", title="types in the configuration", run=_run)
