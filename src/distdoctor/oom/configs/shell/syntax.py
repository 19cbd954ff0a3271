"""The grammar of shell scripts, as far as launch scripts use it: text to a tree of commands. Nothing is run.

What cannot be read costs its statement, not the script: the error is noted with its line and reading goes on at
the next line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from distdoctor.oom.configs.shell.scan import HEREDOC, MAX_DEPTH, WORD_ENDS, Scanner
from distdoctor.oom.configs.shell.tree import (
    AndOr,
    Assignment,
    Bracket,
    Case,
    Function,
    Group,
    HereDocument,
    If,
    Loop,
    Node,
    Pipeline,
    ShellSyntaxError,
    Simple,
    Word,
)

# After this many unreadable statements the text is no shell script.
MAX_ERRORS = 30

_FUNCTION = re.compile(
    r"(?:function[ \t]+)?([A-Za-z_][\w:.-]*)[ \t]*\([ \t]*\)[ \t\n]*(?=[{(])|function[ \t]+([A-Za-z_][\w:.-]*)[ \t\n]*(?=[{(])"
)
_REDIRECTIONS = frozenset({"&>>", ">>", "<&", ">&", "&>", ">|", "<>", "<", ">"})
_RESERVED = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "in"})


@dataclass(slots=True)
class ShellTree:
    """A script as a tree, with what could not be read."""

    nodes: list[Node]
    errors: list[ShellSyntaxError]


def parse_shell(text: str, first_line: int = 1) -> ShellTree:
    """The statements of `text` in order. Never raises: unreadable statements are listed instead."""
    parser = _Parser(text, first_line)
    nodes: list[Node] = []
    errors: list[ShellSyntaxError] = []
    while True:
        parser.skip_separators()
        if parser.at_end():
            return ShellTree(nodes, [*parser.mended, *errors])
        start = parser.position
        start_line = parser.line
        try:
            nodes.append(parser.and_or())
            parser.end_statement()
        except (ShellSyntaxError, RecursionError) as error:
            known = (
                error
                if isinstance(error, ShellSyntaxError)
                else ShellSyntaxError(start_line, "nested too deeply")
            )
            errors.append(known)
            if len(errors) >= MAX_ERRORS:
                return ShellTree(nodes, [*parser.mended, *errors])
            parser.resume_after_line(start, start_line)


class _Parser(Scanner):
    """Recursive descent over what the scanner finds."""

    def and_or(self) -> Node:
        line = self.line
        first = self._pipeline()
        rest: list[tuple[str, Node]] = []
        while True:
            self._skip_blanks()
            operator = self._operator()
            if operator not in ("&&", "||"):
                return AndOr(line, first, rest) if rest else first
            self._take(operator)
            self._skip_newlines()
            rest.append((operator, self._pipeline()))

    def _skip_newlines(self) -> None:
        self._skip_blanks()
        while self._operator() == "\n":
            self._take("\n")
            self._skip_blanks()

    def _pipeline(self) -> Node:
        self._skip_blanks()
        line, is_negated = self.line, False
        while self._next_is("!") or self._next_is("time"):
            is_negated ^= self.text.startswith("!", self.position)
            self._skip_reserved()
        parts = [self._command()]
        while True:
            self._skip_blanks()
            operator = self._operator()
            if operator not in ("|", "|&"):
                break
            self._take(operator)
            self._skip_newlines()
            parts.append(self._command())
        return parts[0] if len(parts) == 1 and not is_negated else Pipeline(line, parts, is_negated)

    def _next_is(self, *reserved: str) -> bool:
        for word in reserved:
            if self.text.startswith(word, self.position):
                after = self.text[self.position + len(word) : self.position + len(word) + 1]
                if after == "" or after in WORD_ENDS or after == "\r":
                    return True
        return False

    def _skip_reserved(self) -> None:
        while not self.at_end() and self.text[self.position] not in WORD_ENDS:
            self.position += 1
        self._skip_blanks()

    def _command(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ShellSyntaxError(self.line, "nested too deeply")
        self._skip_blanks()
        node = self._compound()
        if node is None:
            node = self._simple()
        else:
            self._redirections_after()
        self._depth -= 1
        return node

    def _compound(self) -> Node | None:
        line = self.line
        text = self.text
        if self._next_is("if"):
            return self._if(line)
        if self._next_is("for", "select"):
            return self._for(line)
        if self._next_is("while", "until"):
            kind = "until" if text.startswith("until", self.position) else "while"
            self._skip_reserved()
            condition = self._list("do")
            return Loop(line, kind, self._do_body(), condition=condition)
        if self._next_is("case"):
            return self._case(line)
        if self._next_is("{"):
            self._skip_reserved()
            body = self._list("}")
            self._expect("}")
            return Group(line, body, is_subshell=False)
        if self._next_is("[["):
            end = text.find("]]", self.position)
            if end < 0:
                raise ShellSyntaxError(line, "`[[` is never closed")
            inside = text[self.position + 2 : end]
            self.line += inside.count("\n")
            self.position = end + 2
            return Bracket(line, "[[", inside.replace("\\\n", " "))
        if text.startswith("((", self.position):
            end = text.find("))", self.position)
            if end < 0:
                raise ShellSyntaxError(line, "`((` is never closed")
            inside = text[self.position + 2 : end]
            self.line += inside.count("\n")
            self.position = end + 2
            return Bracket(line, "((", inside)
        if text.startswith("(", self.position):
            self.position += 1
            body = self._list(")")
            self._expect(")")
            return Group(line, body, is_subshell=True)
        match = _FUNCTION.match(text, self.position)
        if match is not None:
            self.line += match[0].count("\n")
            self.position = match.end()
            return Function(line, match[1] or match[2], self._command())
        return None

    def _list(self, *ends: str) -> list[Node]:
        """Statements up to one of the reserved words `ends`, which stays unread."""
        nodes: list[Node] = []
        while True:
            self.skip_separators()
            if self.at_end():
                return nodes  # a script that was cut off ends all that is open
            if self._at_any(ends):
                return nodes
            nodes.append(self.and_or())
            self._skip_blanks()
            if not (self.at_end() or self._operator() in ("\n", ";", "&", ";;", ";&", ";;&", ")")):
                raise ShellSyntaxError(
                    self.line, f"`{self.text[self.position : self.position + 20]}` is not expected here"
                )

    def _at_any(self, ends: tuple[str, ...]) -> bool:
        for end in ends:
            if end in (")", ";;"):
                if self.text.startswith(end, self.position):
                    return True
            elif self._next_is(end):
                return True
        return False

    def _expect(self, reserved: str) -> None:
        self._skip_blanks()
        if self.at_end():
            return
        if not self.text.startswith(reserved, self.position):
            raise ShellSyntaxError(self.line, f"`{reserved}` is missing")
        self.position += len(reserved)

    def _if(self, line: int) -> Node:
        branches: list[tuple[list[Node] | None, list[Node], int]] = []
        while True:
            branch_line = self.line
            if self._next_is("else"):
                self._skip_reserved()
                branches.append((None, self._list("fi"), branch_line))
                self._expect("fi")
                return If(line, branches)
            if self._next_is("fi") or self.at_end():
                self._expect("fi")
                return If(line, branches)
            self._skip_reserved()
            condition = self._list("then")
            self._expect("then")
            branches.append((condition, self._list("elif", "else", "fi"), branch_line))

    def _do_body(self) -> list[Node]:
        self._expect("do")
        body = self._list("done")
        self._expect("done")
        return body

    def _for(self, line: int) -> Node:
        self._skip_reserved()
        if self.text.startswith("((", self.position):
            end = self.text.find("))", self.position)
            if end < 0:
                raise ShellSyntaxError(line, "`((` is never closed")
            name_match = re.match(r"\s*([A-Za-z_]\w*)", self.text[self.position + 2 : end])
            self.position = end + 2
            self.skip_separators()
            return Loop(line, "for((", self._do_body(), name=name_match[1] if name_match else "")
        name = self._raw_word()
        self._skip_newlines()
        words: list[Word] = []
        if self._next_is("in"):
            self._skip_reserved()
            while not self.at_end() and self._operator() is None:
                word = self._word(in_array=True)
                if isinstance(word, Word):
                    words.append(word)
                self._skip_blanks()
        self.skip_separators()
        return Loop(line, "for", self._do_body(), name=name, words=words)

    def _case(self, line: int) -> Node:
        self._skip_reserved()
        word = Word(self._raw_word(), line)
        self._skip_newlines()
        if not self._next_is("in"):
            raise ShellSyntaxError(line, "`case` has no `in`")
        self._skip_reserved()
        arms: list[tuple[list[str], list[Node], int]] = []
        while True:
            self.skip_separators()
            if self.at_end() or self._next_is("esac"):
                self._expect("esac")
                return Case(line, word, arms)
            arm_line = self.line
            if self.text.startswith("(", self.position):
                self.position += 1
            patterns: list[str] = []
            while True:
                self._skip_blanks()
                patterns.append(self._raw_word())
                self._skip_blanks()
                if self._operator() != "|":
                    break
                self._take("|")
            self._expect(")")
            arms.append((patterns, self._list(";;", "esac"), arm_line))
            self._skip_blanks()
            operator = self._operator()
            if operator in (";;", ";&", ";;&"):
                self._take(operator)

    def _simple(self) -> Node:
        command = Simple(self.line)
        while True:
            self._skip_blanks()
            if self.at_end():
                break
            if self._redirection(command):
                continue
            if self._operator() == "(" and command.words:
                self._bare_parenthesis(command)
                continue
            if self._operator() is not None:
                break
            before = self.position
            word = self._word()
            if self.position == before:
                raise ShellSyntaxError(self.line, f"`{self.text[before : before + 10]}` is no word")
            if isinstance(word, Assignment) and not command.words:
                command.assignments.append(word)
            else:
                command.words.append(word)
        first = command.words[0] if command.words else None
        if isinstance(first, Word) and first.raw in _RESERVED:
            raise ShellSyntaxError(first.line, f"`{first.raw}` without its beginning")
        if not (command.words or command.assignments or command.documents or command.output):
            raise ShellSyntaxError(
                self.line, f"`{self.text[self.position : self.position + 10]}` is no command"
            )
        return command

    def _bare_parenthesis(self, command: Simple) -> None:
        """`--moe-layer-freq ([0]*3+[1]*58)`: a syntax error to bash, and clear enough to us."""
        start, line = self.position, self.line
        self._skip_balanced("(", ")")
        rest = self._raw_word()
        text = self.text[start : self.position - len(rest)] + rest
        self.mended.append(
            ShellSyntaxError(line, f"`{text[:30]}` needs quotes: bash refuses a bare parenthesis here")
        )
        command.words.append(Word(f"'{text}'" if "'" not in text else text, line))

    def _redirection(self, command: Simple) -> bool:
        """Reads one redirection if it is next. File descriptors before it (`2>`) are dropped."""
        descriptor = re.compile(r"\d*(?=[<>])|\{\w+\}(?=[<>])").match(self.text, self.position)
        start = self.position
        if descriptor is not None:
            self.position = descriptor.end()
        operator = self._operator()
        if operator == "<<<":
            self._take(operator)
            self._skip_blanks()
            line = self.line
            command.documents.append(HereDocument(self._raw_word(), line, expands=True))
            return True
        if operator in ("<<", "<<-"):
            match = HEREDOC.match(self.text, self.position)
            if match is None:
                raise ShellSyntaxError(self.line, "`<<` has no delimiter")
            self.position = match.end()
            document = HereDocument("", self.line, expands=match[2][0] not in "'\"\\")
            self._pending.append((document, match[2].strip("'\"\\"), match[1] == "-"))
            command.documents.append(document)
            return True
        if operator in _REDIRECTIONS:
            self._take(operator)
            self._skip_blanks()
            line = self.line
            target = self._raw_word()
            if operator in (">", ">>", ">|", "&>") and self.text[start : start + 1] != "2":
                command.output = Word(target, line)
            return True
        self.position = start
        return False

    def _redirections_after(self) -> None:
        throwaway = Simple(self.line)
        self._skip_blanks()
        while not self.at_end() and self._redirection(throwaway):
            self._skip_blanks()
