"""Words, quotes, expansions and here-documents of a shell script: where each one ends. Nothing is resolved here."""

from __future__ import annotations

import re

from distdoctor.oom.configs.shell.tree import Assignment, HereDocument, ShellSyntaxError, Word

# No launch script nests deeper; a hostile one must not exhaust Python's stack.
MAX_DEPTH = 40

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n]{0,200})\])?(\+?)=")
HEREDOC = re.compile(r"<<(-?)[ \t]*(\\?[\w.-]+|'[^'\n]+'|\"[^\"\n]+\")")
_OPERATORS = (
    "&>>",
    "<<<",
    "<<-",
    ";;&",
    "&&",
    "||",
    ";;",
    ";&",
    "|&",
    "<<",
    ">>",
    "<&",
    ">&",
    "&>",
    ">|",
    "<>",
    "|",
    "&",
    ";",
    "<",
    ">",
    "(",
    ")",
    "\n",
)
WORD_ENDS = frozenset(" \t\n;&|()<>")


class Scanner:
    """A place in the text, and what stands there. Raises ShellSyntaxError for what is never closed."""

    def __init__(self, text: str, first_line: int) -> None:
        self.text = text
        self.position = 0
        self.line = first_line
        self._depth = 0
        self.mended: list[ShellSyntaxError] = []
        """What bash refuses and we read on: `(` without quotes in the middle of a command."""
        self._pending: list[tuple[HereDocument, str, bool]] = []

    # -- places in the text

    def at_end(self) -> bool:
        """Whether nothing is left."""
        return self.position >= len(self.text)

    def resume_after_line(self, start: int, line: int) -> None:
        """Goes on at the line behind `start`, whatever was open."""
        newline = self.text.find("\n", start)
        self.position = len(self.text) if newline < 0 else newline + 1
        self.line = line + 1
        self._depth = 0
        self._pending.clear()

    def _skip_blanks(self) -> None:
        """Blanks, continued lines and a comment; not the newline."""
        text = self.text
        while self.position < len(text):
            character = text[self.position]
            if character in " \t\r":
                self.position += 1
            elif text.startswith("\\\n", self.position) or text.startswith("\\\r\n", self.position):
                self.position = text.index("\n", self.position) + 1
                self.line += 1
            elif character == "#":
                newline = text.find("\n", self.position)
                self.position = len(text) if newline < 0 else newline
            else:
                return

    def _operator(self) -> str | None:
        for operator in _OPERATORS:
            if self.text.startswith(operator, self.position):
                if operator in ("<", ">") and self.text.startswith("(", self.position + 1):
                    return None  # process substitution is part of a word
                return operator
        return None

    def _take(self, operator: str) -> None:
        self.position += len(operator)
        if operator == "\n":
            self.line += 1
            self._read_documents()

    def skip_separators(self) -> None:
        """Newlines, `;` and `&` between statements."""
        while True:
            self._skip_blanks()
            operator = self._operator()
            if operator not in ("\n", ";", "&"):
                return
            self._take(operator)

    def end_statement(self) -> None:
        """Raises ShellSyntaxError unless a statement may end here."""
        self._skip_blanks()
        operator = self._operator()
        if self.at_end() or operator in ("\n", ";", "&"):
            return
        raise ShellSyntaxError(
            self.line, f"`{self.text[self.position : self.position + 20]}` is not expected here"
        )

    # -- words

    def _word(self, *, in_array: bool = False) -> Word | Assignment:
        start_line = self.line
        match = _ASSIGNMENT.match(self.text, self.position)
        if match is not None and not in_array:
            self.position = match.end()
            appends = match[3] == "+"
            if self.text.startswith("(", self.position):
                return Assignment(match[1], start_line, self._array(), appends, match[2])
            return Assignment(match[1], start_line, Word(self._raw_word(), start_line), appends, match[2])
        return Word(self._raw_word(), start_line)

    def _array(self) -> list[Word]:
        start_line = self.line
        self.position += 1
        words: list[Word] = []
        while True:
            self._skip_blanks()
            if self.at_end():
                raise ShellSyntaxError(start_line, "`(` is never closed")
            if self.text[self.position] == ")":
                self.position += 1
                return words
            if self.text[self.position] == "\n":
                self._take("\n")
                continue
            before = self.position
            word = self._word(in_array=True)
            if self.position == before:
                raise ShellSyntaxError(self.line, "an array holds something that is no word")
            if isinstance(word, Word):
                words.append(word)

    def _raw_word(self) -> str:
        start = self.position
        pieces: list[str] = []
        text = self.text
        while self.position < len(text):
            character = text[self.position]
            if text.startswith("\\\n", self.position):
                pieces.append(text[start : self.position])
                self.position += 2
                self.line += 1
                start = self.position
            elif character == "\\":
                self.position += 2
            elif character in "'\"`$" or (character in "<>" and text.startswith("(", self.position + 1)):
                self._skip_quoted()
            elif character in WORD_ENDS:
                if character == "(" and text[start : self.position].endswith(("@", "+", "?", "*", "!")):
                    self._skip_balanced("(", ")")  # an extended glob
                    continue
                break
            else:
                self.position += 1
        self.position = min(self.position, len(text))
        pieces.append(text[start : self.position])
        return "".join(pieces)

    def _skip_quoted(self) -> None:
        """Past one quoted string, expansion or substitution, whose first character is here."""
        text, start_line = self.text, self.line
        character = text[self.position]
        if character == "'":
            self._skip_to("'", self.position + 1, start_line)
        elif character == '"':
            self.position += 1
            while True:
                if self.at_end():
                    raise ShellSyntaxError(start_line, "a double quote is never closed")
                character = text[self.position]
                if character == '"':
                    self.position += 1
                    return
                if character in "$`":
                    self._skip_quoted()
                else:
                    self._step()
        elif character == "`":
            self._skip_to("`", self.position + 1, start_line)
        elif character in "<>":
            self.position += 1
            self._skip_balanced("(", ")")
        elif text.startswith("$'", self.position):
            self.position += 2
            while not self.at_end() and text[self.position] != "'":
                self._step()
            self.position += 1
        elif text.startswith("$(", self.position):
            self.position += 1
            self._skip_balanced("(", ")")
        elif text.startswith("${", self.position):
            self.position += 1
            self._skip_balanced("{", "}")
        else:
            self.position += 1

    def _step(self) -> None:
        """One character, or an escaped one."""
        if self.text[self.position] == "\\":
            self.position += 1
        if self.position < len(self.text) and self.text[self.position] == "\n":
            self.line += 1
        self.position += 1

    def _skip_to(self, closing: str, start: int, start_line: int) -> None:
        end = self.text.find(closing, start)
        if end < 0:
            raise ShellSyntaxError(start_line, f"a {closing} is never closed")
        self.line += self.text.count("\n", start, end)
        self.position = end + 1

    def _skip_balanced(self, opening: str, closing: str) -> None:
        start_line, depth = self.line, 0
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ShellSyntaxError(start_line, "nested too deeply")
        text = self.text
        documents: list[tuple[str, bool]] = []
        while True:
            if self.at_end():
                raise ShellSyntaxError(start_line, f"`{opening}` is never closed")
            character = text[self.position]
            if character == opening:
                depth += 1
                self.position += 1
            elif character == closing:
                depth -= 1
                self.position += 1
                if depth == 0:
                    break
            elif character in '"`$' or (character == "'" and opening == "("):
                self._skip_quoted()  # between `${` and `}` an apostrophe is mostly part of a message
            elif (
                opening == "("
                and text.startswith("<<", self.position)
                and (match := HEREDOC.match(text, self.position))
            ):
                documents.append((match[2].strip("'\"\\"), match[1] == "-"))
                self.position = match.end()
            elif character == "\n" and documents:
                self.line += 1
                self.position += 1
                for delimiter, strips in documents:
                    self._document_text(delimiter, strips=strips)
                documents.clear()
            elif opening == "(" and character == "#" and text[self.position - 1] in " \t\n":
                newline = text.find("\n", self.position)
                self.position = len(text) if newline < 0 else newline
            else:
                self._step()
        self._depth -= 1

    # -- here-documents

    def _read_documents(self) -> None:
        for document, delimiter, strips in self._pending:
            document.line = self.line
            document.text = self._document_text(delimiter, strips=strips)
        self._pending.clear()

    def _document_text(self, delimiter: str, *, strips: bool) -> str:
        lines: list[str] = []
        while not self.at_end():
            newline = self.text.find("\n", self.position)
            end = len(self.text) if newline < 0 else newline
            line = self.text[self.position : end].rstrip("\r")
            self.position = min(end + 1, len(self.text))
            self.line += 1
            if strips:
                line = line.lstrip("\t")
            if line == delimiter or line.strip() == delimiter:
                break
            lines.append(line)
        return "".join(f"{line}\n" for line in lines)
