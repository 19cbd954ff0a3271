"""Scripts within the script: `bash -c "…"`, `eval`, and here-documents, which may be files or input of a shell."""

from __future__ import annotations

from distdoctor.oom.configs.shell.directives import read_directives
from distdoctor.oom.configs.shell.ending import ScriptEndsError
from distdoctor.oom.configs.shell.state import MAX_CALLS, Document, Follower, ScriptState
from distdoctor.oom.configs.shell.syntax import parse_shell
from distdoctor.oom.configs.shell.tree import Simple

_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash"})


class NestedScripts:
    """Finds scripts in the words and here-documents of a command, and follows them."""

    def __init__(self, state: ScriptState, follower: Follower) -> None:
        self._state = state
        self._follower = follower

    def script_in(self, fields: list[str], line: int) -> bool:
        """`… bash -c "script"`: its commands are started with the words before `bash` in front."""
        for at, word in enumerate(fields[:200]):
            if word.rsplit("/", 1)[-1] in _SHELLS or word in _SHELLS:
                options = fields[at + 1 :]
                number = next((n for n, option in enumerate(options) if not option.startswith("-")), None)
                flags = options[: number if number is not None else len(options)]
                if number is not None and any(
                    "c" in flag[1:] and not flag.startswith("--") for flag in flags
                ):
                    self.run(options[number], fields[:at], line)
                    return True
                return False
        return False

    def run(self, text: str, outer: list[str], line: int) -> None:
        """Follows a script in `line`; its commands are started with the words of `outer` in front."""
        if self._state.calls >= MAX_CALLS:
            return
        self._state.calls += 1
        start = len(self._state.commands)
        arguments, self._state.expander.arguments = self._state.expander.arguments, []
        try:
            tree = parse_shell(text, first_line=line)
            self._state.errors += tree.errors[:5]
            self._follower.follow_all(tree.nodes)
        except ScriptEndsError:
            pass
        finally:
            self._state.calls -= 1
            self._state.expander.arguments = arguments
        for command in self._state.commands[start:]:
            command.fields = outer + command.fields
            command.line = line

    def read_documents(self, node: Simple, fields: list[str]) -> None:
        """Collects the here-documents of a command, and follows those that a shell is given."""
        for document in node.documents:
            self._state.line = document.line
            text = self._state.expander.document(document.text) if document.expands else document.text
            target = (
                self._state.marks.shown(self._state.expander.text(node.output.raw)) if node.output else None
            )
            first = self._state.marks.shown(fields[0]) if fields else "cat"
            if target is None and first == "tee" and len(fields) > 1:
                target = self._state.marks.shown(fields[-1])
            if len(self._state.documents) < 50:
                self._state.documents.append(
                    Document(self._state.expander.bounded(text, "EOF"), document.line, target, first)
                )
            runs_it = first.rsplit("/", 1)[-1] in ("sbatch", "bash", "sh", "srun") and target is None
            if runs_it:
                if first.endswith("sbatch"):
                    found = read_directives(self._state.marks.shown(text))
                    self._state.more_directives += found
                self.run(text, fields if first == "srun" else [], document.line)
        self._state.line = node.line
