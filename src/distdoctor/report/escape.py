"""Text from evidence, made harmless: invisible characters shown, Markdown defused.

HTML is escaped by jinja2 (autoescape), JSON by its encoder; the terminal renderer reads no markup of Rich.
Nothing that comes out of here becomes a link, a mention, a heading or a colour.
"""

from __future__ import annotations

import html
import re
import unicodedata

# Letters by category, blank by look.
_BLANK_LETTERS = frozenset("\u115f\u1160\u3164\uffa0\u2800")
_NEWLINE = re.compile(r"\r\n|\r|\n")


def visible(text: str, *, multiline: bool = False) -> str:
    """`text` with control, escape, bidirectional, zero-width and other unseen characters written as `\\x1b`.

    Newlines become ` ⏎ ` unless `multiline`; tabs and odd spaces become a space. Idempotent.
    """
    if text.isprintable() and _BLANK_LETTERS.isdisjoint(text):
        return text
    lines = _NEWLINE.split(text.rstrip("\r\n"))
    return ("\n" if multiline else " ⏎ ").join(_visible_line(line) for line in lines)


def _visible_line(line: str) -> str:
    if line.isprintable() and _BLANK_LETTERS.isdisjoint(line):
        return line
    return "".join(
        char if char.isprintable() and char not in _BLANK_LETTERS else _visible_char(char) for char in line
    )


def _visible_char(char: str) -> str:
    if char == "\t" or unicodedata.category(char) == "Zs":
        return " "
    code = ord(char)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# --- Markdown -----------------------------------------------------------------------------------------------

_CODE = re.compile(r"`([^`\n]+)`")
# What GitHub or GitLab would turn into a link, a mention, a reference, a formula or an emoji. The digits of a
# decimal fraction are no commit.
_LINKING = re.compile(
    r"@|://|www\.|mailto:|xmpp:|\$|:[a-z_+\-]{2,}\d?:|(?:^|\W)[#!~%&](?=\w)|\bGH-\d|\b(?!(?<=\d\.)\d+\b)[0-9a-f]{7,}\b",
    re.IGNORECASE,
)
_SPECIAL = re.compile(r"[\\`*\[\]|~]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
_BLOCK_START = re.compile(r"(?P<sign>[#+\-](?=[#+\-\s]|$)|=+$)|(?P<number>\d+)(?P<dot>[.)])(?=\s|$)")
# Punctuation around a word that stays outside its code.
_PEEL = re.compile(r"(?P<before>[(]*)(?P<word>.*?)(?P<after>[),.;:]*)", re.DOTALL)


def markdown_text(text: str) -> str:
    """`text` as one line of GitHub Markdown, for a paragraph, a list item or a table cell.

    Pairs of backticks stay code; words that would become links or mentions become code.
    """
    parts: list[str] = []
    position = 0
    flat = text.replace("\n", " ⏎ ").strip()
    for match in _CODE.finditer(flat):
        parts += (_prose(flat[position : match.start()]), markdown_code(match[1]))
        position = match.end()
    parts.append(_prose(flat[position:]))
    return _not_a_block("".join(parts))


def markdown_code(text: str) -> str:
    """`text` as inline code that also holds inside a table cell."""
    flat = text.replace("\n", " ⏎ ")
    if not flat.strip():
        return ""
    if "<" in flat or ">" in flat or flat.endswith("\\"):
        # A backtick span would be safe too, but tools that do not read Markdown would see the tag.
        return f"<code>{_as_entities(flat)}</code>"
    fence = "`" * (max((len(run) for run in re.findall(r"`+", flat)), default=0) + 1)
    pad = " " if flat.startswith("`") or flat.endswith("`") else ""
    return f"{fence}{pad}{flat.replace('|', chr(92) + '|')}{pad}{fence}"


def markdown_block(text: str) -> str:
    """`text` as a block of code to copy; ends with a newline."""
    if re.search(r"<[A-Za-z/!?]", text):
        return f"<pre>{html.escape(text)}</pre>\n"
    fence = "`" * max(3, max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence}sh\n{text}\n{fence}\n"


def markdown_summary(text: str) -> str:
    """`text` for inside `<summary>`, where Markdown is not read but mentions and references still are."""
    words = html.escape(text).split(" ")
    return " ".join(
        f"<code>{word}</code>" if _LINKING.search(html.unescape(word)) else word for word in words
    )


def _prose(text: str) -> str:
    return re.sub(r"\S+", lambda match: _word(match[0]), text)


def _word(word: str) -> str:
    if _LINKING.search(word):
        peeled = _PEEL.fullmatch(word)
        if peeled is not None and peeled["word"]:
            return peeled["before"] + markdown_code(peeled["word"].replace("`", "'")) + peeled["after"]
        return markdown_code(word.replace("`", "'"))
    word = _SPECIAL.sub(lambda match: "\\" + match[0], word)
    return re.sub(r"[<>]|&(?=#?\w+;)", lambda match: _ENTITIES[match[0]], word)


def _not_a_block(text: str) -> str:
    start = _BLOCK_START.match(text)
    if start is None:
        return text
    if start["sign"]:
        return "\\" + text
    # `1.` would start a list.
    return f"{start['number']}\\{start['dot']}{text[start.end() :]}"


def _as_entities(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9 ]", lambda match: f"&#{ord(match[0])};", text)
