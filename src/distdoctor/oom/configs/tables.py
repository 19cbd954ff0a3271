"""What launch configurations determine and what they leave open, as tables of a report."""

from __future__ import annotations

from distdoctor.oom.facts.launch import ConfigFacts, ConfigKey, LaunchConfig
from distdoctor.report.model import Column, Scalar, Table

# Rows of one table; a manifest of many roles repeats itself.
MAX_ROWS = 80


def config_tables(facts: ConfigFacts) -> tuple[Table, ...]:
    """`config-says` (topic, what, key and line), `config-open` (what, why, how) and `config-notes`, those with rows."""
    tables = []
    if says := _says(facts):
        tables.append(
            Table(
                name="config-says",
                title="What the files determine",
                columns=(Column(name="topic"), Column(name="what"), Column(name="by")),
                rows=says[:MAX_ROWS],
                note=_more(len(says)),
            )
        )
    if missing := _open(facts):
        tables.append(
            Table(
                name="config-open",
                title="What they leave open",
                columns=(Column(name="what"), Column(name="why"), Column(name="how to supply it")),
                rows=missing[:MAX_ROWS],
                note=_more(len(missing)),
            )
        )
    if notes := _notes(facts):
        tables.append(
            Table(
                name="config-notes",
                title="To know about these files",
                columns=(Column(name="file"), Column(name="note")),
                rows=notes[:MAX_ROWS],
                note=_more(len(notes)),
            )
        )
    return tuple(tables)


def _more(number: int) -> str | None:
    return f"{number - MAX_ROWS} more" if number > MAX_ROWS else None


def _says(facts: ConfigFacts) -> tuple[tuple[Scalar, ...], ...]:
    several = len(facts.configs) > 1
    return tuple(
        (each.topic, each.text, _by(config, each.keys, several=several))
        for config in facts.configs
        for each in config.statements
    )


def _by(config: LaunchConfig, keys: tuple[ConfigKey, ...], *, several: bool) -> str:
    shown = ", ".join(
        f"{_short(key.name)} (line {key.line})" if key.line else _short(key.name) for key in keys[:4]
    )
    if len(keys) > 4:
        shown += f" and {len(keys) - 4} more"
    file = _file(config)
    if not shown:
        return file if several else "what is absent"
    return f"{file}: {shown}" if several else shown


def _short(name: str) -> str:
    """The end of a long dotted name: manifests nest deeply."""
    parts = name.split(".")
    if "/" in name or len(parts) <= 3:
        return name if len(name) <= 48 else f"…{name[-47:]}"
    return "…" + ".".join(parts[-2:])


def _open(facts: ConfigFacts) -> tuple[tuple[Scalar, ...], ...]:
    return tuple((each.what, each.why, each.how) for _, each in facts.still_open())


def _notes(facts: ConfigFacts) -> tuple[tuple[Scalar, ...], ...]:
    return tuple((_file(config), note) for config in facts.configs for note in config.notes)


def _file(config: LaunchConfig) -> str:
    return config.path.rsplit("/", 1)[-1]
