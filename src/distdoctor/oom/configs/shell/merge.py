"""Joins what a script's variables are after branches of which only one would be taken."""

from __future__ import annotations

from distdoctor.oom.configs.shell.values import Alternative, Condition, Marks, Unknown, UnknownKind, Value

Outcome = tuple[dict[str, Value], Condition | None]


def merged(
    before: dict[str, Value], outcomes: list[Outcome], marks: Marks, line: int, lines: dict[str, int]
) -> dict[str, Value]:
    """The variables afterwards. What all branches agree on is known; what a branch only adds is marked as from that
    branch; anything else becomes a choice with its alternatives."""
    if not outcomes:
        return dict(before)
    names = dict.fromkeys(name for variables, _ in outcomes for name in variables)
    after: dict[str, Value] = {}
    for name in names:
        values = [variables.get(name) for variables, _ in outcomes]
        first = values[0]
        if first is not None and all(value == first for value in values):
            after[name] = first
            continue
        conditions = [condition for _, condition in outcomes]
        joined = _extended(before.get(name), values, conditions, marks)
        after[name] = (
            joined if joined is not None else _choice(name, values, conditions, marks, lines.get(name, line))
        )
    return after


def _extended(
    base: Value | None, values: list[Value | None], conditions: list[Condition | None], marks: Marks
) -> Value | None:
    """Base plus what each branch adds to it, when every branch only adds."""
    if any(isinstance(value, list) for value in values):
        start = base if isinstance(base, list) else []
        if not all(
            value is None or (isinstance(value, list) and value[: len(start)] == start) for value in values
        ):
            return None
        added: list[str] = list(start)
        for value, condition in zip(values, conditions, strict=True):
            for word in (value or [])[len(start) :]:
                added.append(marks.in_branch(word, condition) if condition is not None else word)
        return added
    start_text = base if isinstance(base, str) else ""
    texts = [value if isinstance(value, str) else "" for value in values]
    if not all(text.startswith(start_text) for text in texts):
        return None
    tails = [text[len(start_text) :] for text in texts]
    adds_words = all(not tail or tail[0].isspace() or tail.lstrip().startswith("-") for tail in tails)
    if not adds_words or (
        start_text and not start_text[-1].isspace() and any(t and not t[0].isspace() for t in tails)
    ):
        return None
    added_text = start_text
    for tail, condition in zip(tails, conditions, strict=True):
        if tail:
            added_text += f" {marks.in_branch(tail, condition)} " if condition is not None else tail
    return added_text


def _choice(
    name: str, values: list[Value | None], conditions: list[Condition | None], marks: Marks, line: int
) -> Value:
    alternatives = []
    for value, condition in zip(values, conditions, strict=True):
        text = "" if value is None else value if isinstance(value, str) else " ".join(value)
        alternatives.append(
            Alternative(value=marks.shown(text)[:80], line=condition.line if condition else line)
        )
    mark = marks.mark(
        Unknown(name=name, kind=UnknownKind.CHOICE, line=line, alternatives=tuple(alternatives))
    )
    return [mark] if any(isinstance(value, list) for value in values) else mark
