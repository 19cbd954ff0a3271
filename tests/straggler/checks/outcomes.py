"""Outcomes of checks for tests, and what holds for every finding."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.straggler.analysed import Analysed
from distdoctor.straggler.checks.base import Found, NotApplicable, NotSeen, Outcome, Passed, StragglerCheck
from distdoctor.straggler.verdict import Answer


def run(check: StragglerCheck, facts: Analysed) -> Sequence[Outcome]:
    """What a check says; every finding keeps to the rules of the house."""
    outcomes = check.run(facts)
    for each in outcomes:
        if isinstance(each, Found):
            keeps_the_rules(each)
    return outcomes


def found(check: StragglerCheck, facts: Analysed) -> Found:
    """The one finding."""
    (only,) = [each for each in run(check, facts) if isinstance(each, Found)]
    return only


def passed(check: StragglerCheck, facts: Analysed) -> str:
    """What the check says of the one thing that it looked at, and found in order."""
    (only,) = run(check, facts)
    assert isinstance(only, Passed), only
    return only.detail


def why_not(check: StragglerCheck, facts: Analysed) -> tuple[str, str]:
    """Why it could not be seen, and what would help; nothing else is said."""
    (only,) = run(check, facts)
    assert isinstance(only, NotSeen), only
    return only.unread.reason, only.unread.how or ""


def absent(check: StragglerCheck, facts: Analysed) -> str:
    """What is known not to be there."""
    (only,) = run(check, facts)
    assert isinstance(only, NotApplicable), only
    return only.detail


def keeps_the_rules(each: Found) -> None:
    """Title, evidence and answer of a finding."""
    assert 0 < len(each.title) <= 80, each.title
    assert each.evidence and all(line.text.strip() for line in each.evidence)
    assert each.explanation.strip()
    assert "nan" not in " ".join(line.text for line in each.evidence).lower().replace("nanmedian", "")
    if each.cause_class is not None:
        assert each.cause_class.partition(":")[0] in {answer.value for answer in Answer}
    for action in each.actions:
        assert action.text.strip()
        assert action.command is None or "\n" not in action.command
