"""The grammar of shell scripts, as far as launch scripts use it: text to a tree of commands. Nothing is run.

What cannot be read costs its statement, not the script: the error is noted with its line and reading goes on at
the next line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

# No launch script nests deeper; a hostile one must not exhaust Python's stack.
MAX_DEPTH = 40

# After this many unreadable statements the text is no shell script.
MAX_ERRORS = 30

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[([^\]\n]{0,200})\])?(\+?)=")
_HEREDOC = re.compile(r"<<(-?)[ \t]*(\\?[\w.-]+|'[^'\n]+'|\"[^\"\n]+\")")
_FUNCTION = re.compile(
    r"(?:function[ \t]+)?([A-Za-z_][\w:.-]*)[ \t]*\([ \t]*\)[ \t\n]*(?=[{(])|function[ \t]+([A-Za-z_][\w:.-]*)[ \t\n]*(?=[{(])"
)
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
_REDIRECTIONS = frozenset({"&>>", ">>", "<&", ">&", "&>", ">|", "<>", "<", ">"})
_RESERVED = frozenset({"then", "elif", "else", "fi", "do", "done", "esac", "}", "in"})
_WORD_ENDS = frozenset(" \t\n;&|()<>")


class ShellSyntaxError(Exception):
    """A statement that is no shell, or is cut short."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line
        self.what = what


@dataclass(slots=True)
class Word:
    """A word as it stands: quotes and expansions unresolved."""

    raw: str
    line: int


@dataclass(slots=True)
class Assignment:
    """`NAME=word`, `NAME+=word`, `NAME=( words )` or `NAME[i]=word`."""

    name: str
    line: int
    value: Word | list[Word]
    appends: bool = False
    index: str | None = None


@dataclass(slots=True)
class HereDocument:
    """Text given to a command: `<<EOF` (expanded unless its delimiter is quoted) or `<<<`."""

    text: str
    line: int
    expands: bool


@dataclass(slots=True)
class Simple:
    """A command: assignments before it, its words (assignments among them for `declare`), its redirections."""

    line: int
    assignments: list[Assignment] = field(default_factory=list)
    words: list[Word | Assignment] = field(default_factory=list)
    documents: list[HereDocument] = field(default_factory=list)
    output: Word | None = None


@dataclass(slots=True)
class Bracket:
    """`[[ … ]]` or `(( … ))`, its inside as one text."""

    line: int
    kind: str
    text: str


@dataclass(slots=True)
class Pipeline:
    """Commands joined by `|`."""

    line: int
    parts: list[Node]
    is_negated: bool


@dataclass(slots=True)
class AndOr:
    """Pipelines joined by `&&` and `||`."""

    line: int
    first: Node
    rest: list[tuple[str, Node]]


@dataclass(slots=True)
class If:
    """Branches with their conditions; the last may have None, which is `else`."""

    line: int
    branches: list[tuple[list[Node] | None, list[Node], int]]


@dataclass(slots=True)
class Case:
    """Arms with their patterns."""

    line: int
    word: Word
    arms: list[tuple[list[str], list[Node], int]]


@dataclass(slots=True)
class Loop:
    """`for NAME in words`, `for ((…))`, `while` or `until`."""

    line: int
    kind: str
    body: list[Node]
    name: str = ""
    words: list[Word] = field(default_factory=list)
    condition: list[Node] = field(default_factory=list)


@dataclass(slots=True)
class Group:
    """`{ … }` or `( … )`."""

    line: int
    body: list[Node]
    is_subshell: bool


@dataclass(slots=True)
class Function:
    """A function's definition."""

    line: int
    name: str
    body: Node


Node = Simple | Bracket | Pipeline | AndOr | If | Case | Loop | Group | Function


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


class _Parser:
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
        return self.position >= len(self.text)

    def resume_after_line(self, start: int, line: int) -> None:
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
            elif character in _WORD_ENDS:
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
                and (match := _HEREDOC.match(text, self.position))
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

    # -- statements

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
                if after == "" or after in _WORD_ENDS or after == "\r":
                    return True
        return False

    def _skip_reserved(self) -> None:
        while not self.at_end() and self.text[self.position] not in _WORD_ENDS:
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
            match = _HEREDOC.match(self.text, self.position)
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
