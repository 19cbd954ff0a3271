"""Whole configurations: settings, statements, open points and defects, family by family."""

from __future__ import annotations

import re

import pytest

from distdoctor.oom.configs.join import config_facts
from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.configs.tables import config_tables
from distdoctor.oom.facts.launch import LaunchConfig
from oom.launch_samples import ALL, Sample


def value_of(config: LaunchConfig, name: str) -> object:
    value = getattr(config.settings, name)
    return getattr(value, "value", value)


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_a_configuration_is_read_as_a_careful_reader_would(sample: Sample) -> None:
    config = read_config_text(sample.name, sample.text)
    assert {name: value_of(config, name) for name in sample.settings} == sample.settings
    if sample.model is not None:
        assert config.settings.model is not None
        assert config.settings.model.name == sample.model
    defects = [(each.kind.name, each.title) for each in config.defects]
    for kind, part in sample.flags:
        assert any(kind == each and part in title for each, title in defects), (kind, part, defects)
    for kind in sample.stops:
        assert any(each.kind.name == kind and each.stops_job for each in config.defects), (kind, defects)
    for kind in sample.never:
        assert kind not in {each for each, _ in defects}
    if sample.only is not None:
        assert {each for each, _ in defects} <= set(sample.only)
    said = [each.text for each in config.statements]
    for part in sample.says:
        assert any(part in text for text in said), (part, said)
    left_open = [f"{each.what}: {each.why}" for each in config.open_points]
    for part in sample.open:
        assert any(part in text for text in left_open), (part, left_open)


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_every_line_number_points_at_its_key(sample: Sample) -> None:
    config = read_config_text(sample.name, sample.text)
    lines = sample.text.lstrip("\ufeff").replace("\r\n", "\n").split("\n")
    keys = [key for each in (*config.statements, *config.defects) for key in each.keys]
    for key in keys:
        assert key.line is None or 1 <= key.line <= len(lines)
        name = re.split(r"[.:]", key.name.removesuffix("]"))[-1].lstrip("-")
        name = re.sub(r"\[\d+$", "", name)
        if key.line is not None and name.isidentifier() and not key.name.startswith("#"):
            around = "\n".join(lines[max(0, key.line - 2) : key.line + 1]).replace("-", "_")
            assert name.replace("-", "_") in around or str(key.value) in around, (key, around)


@pytest.mark.parametrize("sample", ALL, ids=lambda sample: sample.name)
def test_titles_fit_and_tables_say_something(sample: Sample) -> None:
    config = read_config_text(sample.name, sample.text)
    assert all(len(each.title) <= 80 for each in config.defects)
    tables = config_tables(config_facts([config]))
    assert all(len(row) == len(table.columns) for table in tables for row in table.rows)
    assert {each.name for each in tables} <= {"config-says", "config-open", "config-notes"}
    assert tables
