"""Text from evidence is made harmless for Markdown."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings

from distdoctor.report.escape import (
    markdown_block,
    markdown_code,
    markdown_summary,
    markdown_text,
    visible,
)
from report.generated import texts


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("rank 19 is 31 % slower (host-c)", "rank 19 is 31 % slower (host-c)"),
        ("NCCL_IB_HCA=mlx5_0 is set", "NCCL_IB_HCA=mlx5_0 is set"),
        ("a|b", r"a\|b"),
        ("*x* _y_ ~z~", r"\*x\* \_y\_ `~z~`"),
        ("[a](b) ![c](d)", r"\[a\](b) !\[c\](d)"),
        ("<script>x</script> &amp; a & b", "&lt;script&gt;x&lt;/script&gt; `&amp`; a & b"),
        ("ask @alice, see #12.", "ask `@alice`, see `#12`."),
        ("(http://x.example/y) www.x.example", "(`http://x.example/y`) `www.x.example`"),
        ("fixed in GH-12 and 0123abc", "fixed in `GH-12` and `0123abc`"),
        ("set `NCCL_DEBUG=INFO` and a`b", r"set `NCCL_DEBUG=INFO` and a\`b"),
        ("1. one", r"1\. one"),
        ("314.2", "314.2"),
        ("0.0001941 GB/s", "0.0001941 GB/s"),
        ("0.000194abc and v1.0123abc", "`0.000194abc` and `v1.0123abc`"),
        ("- item", r"\- item"),
        ("# head", r"\# head"),
        ("==", r"\=="),
        ("-5 ms", "-5 ms"),
        ("gpu 3 (0000:3B:00.0, x)", "gpu 3 (0000:3B:00.0, x)"),
        (":tada: $HOME", "`:tada`: `$HOME`"),
    ],
)
def test_a_line_of_markdown(text: str, escaped: str) -> None:
    assert markdown_text(text) == escaped


def test_code_holds_backticks_and_pipes() -> None:
    assert markdown_code("a|b") == r"`a\|b`"
    assert markdown_code("a`b``c") == "```a`b``c```"
    assert markdown_code("`a`") == "`` `a` ``"
    assert "<" not in markdown_code("<b>x</b>").removeprefix("<code>").removesuffix("</code>")


def test_a_block_cannot_be_closed_from_inside() -> None:
    assert markdown_block("a\n```\nb") == "````sh\na\n```\nb\n````\n"
    assert markdown_block("</details><script>").startswith("<pre>&lt;/details&gt;")


def test_a_summary_links_nothing() -> None:
    assert markdown_summary("ask @alice <b>") == "ask <code>@alice</code> &lt;b&gt;"


@settings(max_examples=400, deadline=None)
@given(texts)
def test_no_line_of_markdown_opens_html_a_table_cell_or_a_link(text: str) -> None:
    escaped = markdown_text(visible(text))
    assert "\n" not in escaped
    assert re.search(r"(?<!\\)(?:\\\\)*\|", escaped) is None
    outside = without_code(escaped)
    assert re.search(r"<[A-Za-z/!?]", outside.replace("<code>", "").replace("</code>", "")) is None
    assert "://" not in outside
    assert re.search(r"(?<!\\)(?:\\\\)*[\[\]]", outside) is None
    assert "@" not in outside


def without_code(text: str) -> str:
    """`text` without its code spans: a run of backticks up to the next run of the same length."""
    return re.sub(r"(?<![`\\])(`+)(?!`)(.*?)(?<!`)\1(?!`)", "", text)


@settings(max_examples=300, deadline=None)
@given(texts)
def test_showing_what_is_unseen_is_idempotent(text: str) -> None:
    once = visible(text)
    assert visible(once) == once
    assert once.isprintable()
