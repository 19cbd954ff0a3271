"""The report over launch configurations: what they determine, leave open and contradict, and what it comes to."""

from __future__ import annotations

import re
from collections.abc import Sequence

from msgspec.structs import replace

from distdoctor.errors import InputError, UsageError
from distdoctor.evidence import find_files, read_evidence
from distdoctor.oom.checks.config.all import CONFIG_CHECKS
from distdoctor.oom.checks.config.states import CHECK as STATES_CHECK
from distdoctor.oom.configs.join import config_facts
from distdoctor.oom.configs.parameter_count import parameters_of
from distdoctor.oom.configs.read import read_config, read_config_text
from distdoctor.oom.configs.tables import config_tables
from distdoctor.oom.estimate import estimate
from distdoctor.oom.estimate_tables import estimate_tables
from distdoctor.oom.facts.estimated import EstimateFacts
from distdoctor.oom.facts.launch import ConfigFacts, Defect, LaunchConfig
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Settings
from distdoctor.report.assemble import MAX_TITLE, build_report
from distdoctor.report.checking import run_checks
from distdoctor.report.model import (
    CheckState,
    Confidence,
    InputFile,
    Report,
    Severity,
    Subject,
    Table,
    Verdict,
)
from distdoctor.report.request import ReportRequest
from distdoctor.report.site import apply_site


def report_of_configs(
    request: ReportRequest, paths: Sequence[str], *, given: Settings | None = None
) -> Report:
    """The report over the configurations of one job; what is `given` wins. Raises InputError when none can be read."""
    configs, inputs = read_configs(paths)
    facts = config_facts(configs, given)
    wanted = [check for check in CONFIG_CHECKS if not request.only or check.id in request.only]
    findings, skipped, checks = run_checks(wanted, facts, is_live=False)
    report = build_report(
        command=request.command,
        argv=request.argv,
        about=_about(facts),
        findings=apply_site(findings, request.site, ignore=request.ignore),
        checks=checks,
        skipped=skipped,
        subject=Subject(world_size=facts.joined.world_size),
        tables=(*_first(config_tables(facts)), *_estimated(facts)),
        inputs=inputs,
        started=request.started,
        answered=all(each.read for each in inputs),
    )
    return replace(report, verdict=_verdict(report, facts))


def read_configs(paths: Sequence[str]) -> tuple[list[LaunchConfig], tuple[InputFile, ...]]:
    """The configurations, and what became of each file. Raises InputError when none can be read."""
    configs: list[LaunchConfig] = []
    inputs: list[InputFile] = []
    errors: list[InputError] = []
    for path in _files(paths):
        try:
            config = _read(path)
        except InputError as error:
            errors.append(error)
            inputs.append(InputFile(path=path, kind="configuration", read=False, why_not=error.message))
        else:
            configs.append(config)
            inputs.append(InputFile(path=path, kind=config.family.value))
    if not configs:
        raise errors[0] if errors else InputError("no file was given")
    return configs, tuple(inputs)


def doubts_of(paths: Sequence[str], merged: Settings) -> tuple[str, ...]:
    """What the files leave open, beyond what was said elsewhere (`merged`), and values in them that were not used."""
    configs, _ = read_configs(paths)
    facts = config_facts(configs, merged)
    left_open = [
        each.what
        for _, each in facts.still_open()
        if each.settles is not None and getattr(merged, each.settles, None) is None
    ]
    silent = [
        f"nothing in {config.path.rpartition('/')[2]} decides a size"
        for config in configs
        if config.settings == Settings()
    ]
    unusable = [
        each.title for config in configs for each in config.defects if each.kind in _UNUSABLE and each.keys
    ]
    return tuple(dict.fromkeys((*silent, *unusable, *left_open)))


_UNUSABLE = frozenset({Defect.CONFLICT, Defect.EMPTY_VALUE, Defect.UNSET_VARIABLE})

# `config_registry.py:llama3_8b`: one function of a Python configuration.
_FUNCTION = re.compile(r"(.+\.py):([A-Za-z_]\w*)")


def _files(paths: Sequence[str]) -> list[str]:
    """The files; what names a function of one is kept as it is."""
    return [file for path in paths for file in ([path] if _FUNCTION.fullmatch(path) else find_files([path]))]


def _read(path: str) -> LaunchConfig:
    named = _FUNCTION.fullmatch(path)
    if named is None:
        return read_config(path)
    return read_config_text(path, read_evidence(named[1]).text)


def _first(tables: tuple[Table, ...]) -> tuple[Table, ...]:
    """What the files determine stands right below the verdict."""
    return tuple(replace(table, place="first") if index == 0 else table for index, table in enumerate(tables))


def _estimated(facts: ConfigFacts) -> tuple[Table, ...]:
    """Where the memory would go, where the files say enough for that."""
    try:
        job = resolve(facts.joined)
        found = estimate(job)
    except UsageError:
        return ()
    tables = estimate_tables(EstimateFacts(job=job, estimate=found))
    return tuple(replace(table, place="body") for table in tables)


def _about(facts: ConfigFacts) -> str:
    names = ", ".join(dict.fromkeys(config.family.value for config in facts.configs))
    number = len(facts.configs)
    return f"{number} configuration{'s' if number != 1 else ''} ({names})"


def _model_words(facts: ConfigFacts) -> str:
    """`8.03 billion parameters; `, where a file says so."""
    count = parameters_of(facts.joined.model) if facts.joined.model is not None else None
    return f"{count / 1e9:.3g} billion parameters; " if count else ""


def _verdict(report: Report, facts: ConfigFacts) -> Verdict:
    """Where no finding speaks: what is determined, and what is missing for an estimate."""
    serious = any(each.ignored is None and each.severity is not Severity.INFO for each in report.findings)
    unread = [each for each in report.inputs if not each.read]
    if serious or unread:
        return report.verdict
    said = list(
        dict.fromkeys(
            each.text for config in facts.configs for each in config.statements if each.topic == "strategy"
        )
    )
    missing = [each.what for _, each in facts.still_open()]
    title = said[0] if said else f"{_model_words(facts)}no strategy is named"
    if len(title) > MAX_TITLE:
        title = f"{title[: MAX_TITLE - 1]}…"
    them = "it" if len(facts.configs) == 1 else "them"
    summary = f"{_about(facts)}; nothing in {them} contradicts itself, as far as it was looked at."
    estimated = next(
        (
            each.detail
            for each in report.checks
            if each.id == STATES_CHECK.id and each.state is CheckState.PASSED
        ),
        None,
    )
    if estimated:
        summary += f" {estimated[0].upper()}{estimated[1:]}."
    if missing:
        summary += f" Left open: {', '.join(missing[:6])}."
    return replace(report.verdict, title=title, summary=summary, confidence=Confidence.MEDIUM)
