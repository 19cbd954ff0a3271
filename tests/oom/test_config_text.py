"""JSON and YAML as sections with lines: what is tolerated, what is refused, and how fast."""

from __future__ import annotations

import time

import pytest

from distdoctor.errors import InputError
from distdoctor.oom.configs.read import read_config_text
from distdoctor.oom.configs.text.json_text import read_json
from distdoctor.oom.configs.text.tree import repeated, shown, walk
from distdoctor.oom.configs.text.yaml_text import read_yaml


def test_json_keys_have_lines_and_dotted_names() -> None:
    root = read_json('{\n "a": 1,\n "b": {\n  "c": [1, {"d": null}]\n }\n}', "x.json").root
    assert [(each.name, each.line) for each in walk(root)] == [
        ("a", 2),
        ("b", 3),
        ("b.c", 4),
        ("b.c[0]", 4),
        ("b.c[1]", 4),
        ("b.c[1].d", 4),
    ]


def test_json_tolerates_what_hjson_does_and_says_so() -> None:
    found = read_json('// head\n{"a": 5e8, /* why */ "b": NaN,\n "c": True, }', "x.json")
    assert found.lenient == ("Python words such as True", "a comma before the closing bracket", "comments")
    assert found.root.entries["a"].value == 5e8
    assert found.root.entries["b"].value == "NaN"
    assert found.root.entries["c"].value is True


def test_a_key_that_stands_twice_is_told_and_the_last_counts() -> None:
    root = read_json('{"a": {"x": 1, "x": 2}}', "x.json").root
    assert root.section("a").entries["x"].value == 2
    assert [each.value for each in repeated(root)] == [1]
    document = read_yaml("a:\n  x: 1\n  x: 2\n", "x.yaml").documents[0]
    assert [(each.name, each.line) for each in repeated(document)] == [("a.x", 2)]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ('{"a": 1,\n "b": 2', "ends too early, line 2"),
        ('{"a": 1\n "b": 2}', "comma is missing"),
        ('{"a" 1}', "colon is missing"),
        ("{a: 1}", "key in quotes is missing"),
        ('{"a": "x}', "string does not end"),
        ('{"a": 1} }', "follows the closing bracket"),
        ('{"a": @}', "unexpected"),
        ("[1]", "no JSON object"),
    ],
)
def test_broken_json_is_refused_with_the_place(text: str, part: str) -> None:
    with pytest.raises(InputError, match=part):
        read_json(text, "x.json")


def test_yaml_values_mean_what_pyyaml_makes_of_them() -> None:
    text = "a: yes\nb: 'no'\nc: 1e-5\nd: 1_000\ne: 0x10\nf:\ng: ~\nh: 12:30\ni: 010\nj: 1.5\n"
    root = read_yaml(text, "x.yaml").documents[0]
    values = {key: entry.value for key, entry in root.entries.items()}
    assert values == {
        "a": True,
        "b": "no",
        "c": "1e-5",
        "d": 1000,
        "e": 16,
        "f": None,
        "g": None,
        "h": "12:30",
        "i": 8,
        "j": 1.5,
    }


def test_yaml_lines_anchors_and_merges() -> None:
    text = "base: &b\n  x: 1\n  y: 2\nuse:\n  <<: *b\n  y: 3\n"
    root = read_yaml(text, "x.yaml").documents[0]
    use = root.section("use")
    assert (use.entries["x"].value, use.entries["y"].value, use.entries["y"].line) == (1, 3, 6)


def test_template_places_stand_as_they_are_in_the_file() -> None:
    text = '{{- if .Values.x }}\nreplicas: {{ .Values.nodes }}\nimage: "{{ .Values.image }}:v1"\n{{- end }}\n'
    found = read_yaml(text, "x.yaml")
    assert found.is_template
    values = {key: entry.value for key, entry in found.documents[0].entries.items()}
    assert values == {"replicas": "{{ .Values.nodes }}", "image": "{{ .Values.image }}:v1"}
    assert found.documents[0].entries["replicas"].line == 2


def test_lines_that_only_a_template_engine_understands_are_left_out() -> None:
    root = read_yaml("a: 1\n$EXTRA\nb: @NODES@\nc: %NUM%\n", "x.yaml").documents[0]
    assert {key: entry.value for key, entry in root.entries.items()} == {"a": 1, "b": "@NODES@", "c": "%NUM%"}


def test_tabs_are_read_and_told() -> None:
    found = read_yaml("a:\n\tb: 1\nc: 2\n", "x.yaml")
    assert found.lenient == ("a tab in the indentation, line 2",)
    assert found.documents[0].section("a").entries["b"].value == 1


@pytest.mark.parametrize(
    "text", ["a: [1, 2\nb: 3\n", "a: b: c\n", "'unclosed\n", "- 1\n- 2\n", "just words\n"]
)
def test_what_is_no_yaml_mapping_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        read_yaml(text, "x.yaml")


def test_python_tags_make_no_objects() -> None:
    root = read_yaml('a: !!python/object/apply:os.system ["false"]\nb: 1\n', "x.yaml").documents[0]
    assert root.entries["b"].value == 1
    assert shown(root.entries["a"].value) == "[false]"


def _bomb() -> str:
    lines = ['a0: &a0 ["x", "x", "x", "x", "x", "x", "x", "x", "x"]']
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
    return "\n".join([*lines, "distributed_type: FSDP"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("bomb.yaml", _bomb()),
        ("deep.yaml", "distributed_type: FSDP\nx: " + "[" * 3000 + "]" * 3000),
        ("deep.json", '{"zero_optimization":' + '{"a":' * 3000 + "1" + "}" * 3001),
        ("own_child.yaml", "distributed_type: FSDP\na: &a\n  b: *a\n"),
        ("braces.yaml", "apiVersion: v1\nkind: Job\nspec: " + "{{" * 30_000),
        ("large.yaml", "distributed_type: FSDP\n" + "# x\n" * 200_000),
    ],
)
def test_hostile_files_are_refused_soon(name: str, text: str) -> None:
    start = time.process_time()
    with pytest.raises(InputError):
        read_config_text(name, text)
    # A bound against quadratic reading, far above what it takes (under a second).
    assert time.process_time() - start < 20


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("hello world\n", "text without settings"),
        ('{"a": 1, "b": 2}', "JSON with the keys a, b"),
        ("colour: red\nsize: 3\n", "YAML with the keys colour, size"),
        ("import os\nprint(1)\n", "Python"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB", "oom explain"),
        ("#!/bin/bash\necho hi\n", "script"),
    ],
)
def test_a_file_that_is_no_configuration_is_told_what_it_looks_like(text: str, part: str) -> None:
    with pytest.raises(InputError) as raised:
        read_config_text("file", text)
    assert part in raised.value.message


def test_a_broken_configuration_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match="line 4"):
        read_config_text("ds.json", '{\n "zero_optimization": {\n  "stage": 3\n  "overlap_comm": true\n }\n}')
    with pytest.raises(InputError, match=r"line [34]"):
        read_config_text("acc.yaml", "distributed_type: FSDP\nnum_processes: 8\nfoo: [1, 2\n")
