"""Statements that set variables: `A=1`, `ARGS+=( … )`, `export A=1`, `(( N = A * 8 ))`, `read`, `set --`."""

from __future__ import annotations

import re

from distdoctor.oom.configs.shell.conditions import Verdict, judge_arithmetic
from distdoctor.oom.configs.shell.state import ScriptState
from distdoctor.oom.configs.shell.tree import Assignment, Simple, Word
from distdoctor.oom.configs.shell.values import UnknownKind

_NAME = re.compile(r"[A-Za-z_]\w*")


def assign(state: ScriptState, node: Assignment) -> None:
    """`A=1`, `A+=b`, `A=( words )` or `A[i]=word`."""
    state.line = node.line
    expander = state.expander
    old = expander.values.get(node.name)
    if isinstance(node.value, list):
        words = [field for word in node.value for field in expander.fields(word.raw)]
        words = [expander.bounded(word, node.name) for word in words[:5000]]
        if node.appends:
            words = ([old] if isinstance(old, str) else list(old or [])) + words
        if sum(map(len, words)) > 200_000 or len(words) > 5000:
            words = [expander.unknown(node.name, UnknownKind.TOO_LONG)]
        state.assign(node.name, words)
        return
    text = expander.text(node.value.raw)
    if node.index is not None:
        at = expander.arithmetic(node.index)
        items = list(old) if isinstance(old, list) else []
        if re.fullmatch(r"\d{1,4}", at) and int(at) <= len(items):
            items[int(at) : int(at) + 1] = [text]
        else:
            items.append(expander.unknown(f"{node.name}[{node.index}]", UnknownKind.COMMAND))
        state.assign(node.name, items)
        return
    if node.appends:
        if isinstance(old, list):
            first = (old[0] if old else "") + text
            state.assign(node.name, [first, *old[1:]])
            return
        text = (old or "") + text
    state.assign(node.name, expander.bounded(text, node.name))


def declare(state: ScriptState, node: Simple) -> None:
    """`export`, `declare`, `local` and the like, with or without values."""
    raw = [word.raw for word in node.words[1:] if isinstance(word, Word)]
    if any(text.startswith(("$(", "`")) for text in raw):
        state.sources.append(raw[0][:60])  # `export $(xargs < .env)`
    for word in node.words[1:]:
        if isinstance(word, Assignment):
            assign(state, word)
        elif "=" in word.raw and not word.raw.startswith("-"):
            name, _, value = state.expander.text(word.raw).partition("=")
            if _NAME.fullmatch(name):
                state.assign(name, value)


def arithmetic_command(state: ScriptState, text: str) -> Verdict:
    """`(( N = A * 8 ))` sets N; anything else is judged."""
    match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)(.*)", text, re.DOTALL)
    if match is None:
        return judge_arithmetic(text, state.expander)
    expression = f"{match[1]} {match[2]} ({match[3]})" if match[2] else match[3]
    state.assign(match[1], state.expander.arithmetic(expression))
    return Verdict(True)


def assigning_builtin(state: ScriptState, node: Simple, fields: list[str]) -> None:
    """`read NAME`, `mapfile NAME`, `set -- words`; nothing for commands that set no variable."""
    names = [each for each in fields[1:] if _NAME.fullmatch(each)]
    if fields[0] == "read" and names and node.documents:
        document = node.documents[0]
        text = state.expander.document(document.text) if document.expands else document.text
        state.assign(names[-1], text.strip())
    elif fields[0] in ("read", "mapfile", "readarray"):
        for each in names:
            state.assign(each, state.expander.unknown(each, UnknownKind.COMMAND))
    elif fields[0] == "set" and "--" in fields:
        state.expander.arguments = fields[fields.index("--") + 1 :]
