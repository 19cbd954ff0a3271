"""What `[ … ]`, `[[ … ]]` and `(( … ))` come to: true, false, or not to be known from the script."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from distdoctor.oom.configs.shell.expand import Expander
from distdoctor.oom.configs.shell.tree import AndOr, Bracket, Group, Node, Pipeline, Simple, command_name
from distdoctor.oom.configs.shell.values import EMPTY_AS_IT_STANDS, Unknown, has_region

TESTS = frozenset({"[", "test"})
_CONSTANT = frozenset({"true", "false", ":"})
_NUMERIC = {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}
_BINARY = _NUMERIC | {"=", "==", "!=", "=~", "<", ">", "-nt", "-ot", "-ef"}
_MAX_WORDS = 60
_MAX_DEPTH = 20


@dataclass(slots=True)
class Verdict:
    """`value` None: it depends on what the script does not show. `hinges_on`: unknowns that were taken as empty."""

    value: bool | None
    hinges_on: list[Unknown] = field(default_factory=list)


def judge_test(words: list[str], expander: Expander) -> Verdict:
    """A `test` or `[ … ]` command whose words are raw; also the inside of `[[ … ]]`."""
    judge = _Judge(words[:_MAX_WORDS], expander)
    try:
        value = judge.disjunction()
    except (IndexError, RecursionError):
        value = None
    return Verdict(value, judge.hinges_on)


def judge_arithmetic(expression: str, expander: Expander) -> Verdict:
    """`(( expression ))`: true unless it is zero."""
    text = expander.arithmetic(expression)
    unknowns = expander.marks.unknowns_in(text)
    if not unknowns:
        return Verdict(text.strip() != "0")
    missing = [each for each in unknowns if each.kind in EMPTY_AS_IT_STANDS]
    return Verdict(None, missing)


def is_decidable(node: Node) -> bool:
    """Whether a condition consists of tests alone."""
    match node:
        case Bracket():
            return True
        case Simple():
            return command_name(node) in TESTS | _CONSTANT
        case Pipeline():
            return len(node.parts) == 1 and is_decidable(node.parts[0])
        case AndOr():
            return is_decidable(node.first) and all(is_decidable(each) for _, each in node.rest)
        case Group():
            return all(is_decidable(each) for each in node.body)
        case _:
            return False


def test_words(text: str) -> list[str]:
    """The words inside `[[ … ]]`, quotes kept."""
    words: list[str] = []
    at = 0
    text = text.strip()[:4000]
    while at < len(text) and len(words) < _MAX_WORDS:
        match = _next_word(text, at)
        words.append(match[0])
        at = match[1]
    return [word for word in words if word]


def _next_word(text: str, at: int) -> tuple[str, int]:
    while at < len(text) and text[at].isspace():
        at += 1
    start = at
    for operator in ("&&", "||", "(", ")"):
        if text.startswith(operator, at):
            return operator, at + len(operator)
    quote = ""
    depth = 0
    while at < len(text):
        character = text[at]
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character == "\\":
            at += 1
        elif character in "({" and text[at - 1 : at] == "$":
            depth += 1
        elif depth and character in ")}":
            depth -= 1
        elif not depth and (character.isspace() or character == ")" or text.startswith(("&&", "||"), at)):
            break
        at += 1
    return text[start:at], at


class _Judge:
    """Recursive descent over the words; `and`, `or` and `not` with three values."""

    def __init__(self, words: list[str], expander: Expander) -> None:
        self._words = words
        self._at = 0
        self._expander = expander
        self._depth = 0
        self.hinges_on: list[Unknown] = []

    def disjunction(self) -> bool | None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise IndexError
        value = self._conjunction()
        while self._peek() in ("||", "-o"):
            self._at += 1
            other = self._conjunction()
            value = True if True in (value, other) else None if None in (value, other) else False
        self._depth -= 1
        return value

    def _conjunction(self) -> bool | None:
        value = self._negation()
        while self._peek() in ("&&", "-a"):
            self._at += 1
            other = self._negation()
            value = False if False in (value, other) else None if None in (value, other) else True
        return value

    def _negation(self) -> bool | None:
        if self._peek() == "!":
            self._at += 1
            value = self._negation()
            return None if value is None else not value
        if self._peek() in ("(", "\\("):
            self._at += 1
            value = self.disjunction()
            self._at += 1
            return value
        return self._primary()

    def _peek(self) -> str:
        return self._words[self._at] if self._at < len(self._words) else ""

    def _primary(self) -> bool | None:
        word = self._words[self._at]
        following = self._words[self._at + 1] if self._at + 1 < len(self._words) else ""
        if following.replace("\\", "") in _BINARY and self._at + 2 < len(self._words):
            self._at += 3
            return self._binary(word, following.replace("\\", ""), self._words[self._at - 1])
        if re.fullmatch(r"-[a-zA-Z]", word) and following and following not in ("&&", "||", ")", "-a", "-o"):
            self._at += 2
            return self._unary(word, following)
        self._at += 1
        if word in ("-n", "-z"):  # `[ -n $X ]` without quotes and without X: one word, hence true
            return True
        return self._nonempty(word)

    def _unary(self, operator: str, raw: str) -> bool | None:
        if operator not in ("-n", "-z"):
            return None  # about files, terminals and the like
        value = self._nonempty(raw)
        if value is None:
            return None
        return value if operator == "-n" else not value

    def _nonempty(self, raw: str) -> bool | None:
        text = self._text(raw)
        if text is None:
            return None
        return bool(text)

    def _text(self, raw: str) -> str | None:
        """A side of a test; unknowns that are empty as the script stands count as empty."""
        text = self._expander.text(raw)
        if has_region(text):
            return None
        for unknown in self._expander.marks.unknowns_in(text):
            if unknown.kind not in EMPTY_AS_IT_STANDS:
                return None
            self.hinges_on.append(unknown)
            text = text.replace(self._expander.marks.text_of(unknown), "0" if unknown.name == "#" else "", 1)
        return text

    def _binary(self, left_raw: str, operator: str, right_raw: str) -> bool | None:
        left, right = self._text(left_raw), self._text(right_raw)
        if left is None or right is None:
            return None
        if operator in ("-nt", "-ot", "-ef", "=~"):
            return None
        if operator in _NUMERIC:
            return self._numeric(left, operator, right)
        if operator in ("<", ">"):
            return left < right if operator == "<" else left > right
        is_pattern = re.search(r"[*?\[]", right) is not None and right_raw[:1] not in "\"'"
        if is_pattern and len(right) <= 100 and right.count("*") <= 3:
            equal = fnmatchcase(left[:4000], right)
        else:
            equal = left == right
        return equal if operator != "!=" else not equal

    def _numeric(self, left: str, operator: str, right: str) -> bool | None:
        if not left.strip() or not right.strip():
            return (
                False  # "unary operator expected" or "integer expression expected": an error, hence not true
            )
        if not (re.fullmatch(r"\s*-?\d{1,18}\s*", left) and re.fullmatch(r"\s*-?\d{1,18}\s*", right)):
            return None
        one, other = int(left), int(right)
        return {
            "-eq": one == other,
            "-ne": one != other,
            "-lt": one < other,
            "-le": one <= other,
            "-gt": one > other,
            "-ge": one >= other,
        }[operator]
