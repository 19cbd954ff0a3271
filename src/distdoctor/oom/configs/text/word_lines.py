"""On which line each word of a long command stands: `shell.read_script` gives the line where the command begins."""

from __future__ import annotations

from collections.abc import Sequence

from distdoctor.oom.configs.shell.script import Command
from distdoctor.oom.configs.text.tree import Entry

# Commands are continued over some dozen lines.
MAX_LINES = 200


def words_with_lines(command: Command, lines: Sequence[str], *, offset: int = 0) -> list[Entry]:
    """The command's words, each with the first line from the word before it on that holds it.

    A word that came out of a variable is on no line: it gets that of the word before it. `offset` is added to all.
    """
    at = max(command.line - 1, 0)
    end = min(len(lines), at + MAX_LINES)
    found = []
    for token in command.tokens:
        name = token.text.partition("=")[0]
        if name:
            at = next((line for line in range(at, end) if _is_on(name, lines[line])), at)
        found.append(Entry(name="", value=token.text, line=offset + max(at + 1, token.line)))
    return found


def _is_on(word: str, line: str) -> bool:
    """Options are matched whole, so that `--bf16` is not found in `--bf16_full_eval`."""
    place = line.find(word)
    if place < 0:
        return False
    after = line[place + len(word) : place + len(word) + 1]
    return not (after.isalnum() or after in ("_", "-"))
