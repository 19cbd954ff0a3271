"""Follows a script's statements in order over known and unknown variables. Nothing is executed.

A condition that the text decides is followed; otherwise every branch is followed on a copy of the variables and
what differs afterwards is marked. An ordinary command is taken to succeed.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from distdoctor.oom.configs.shell.assigned import assignments_in
from distdoctor.oom.configs.shell.conditions import Verdict, judge_arithmetic, judge_test, test_words
from distdoctor.oom.configs.shell.directives import Directive, read_directives
from distdoctor.oom.configs.shell.expand import Expander
from distdoctor.oom.configs.shell.merge import merged
from distdoctor.oom.configs.shell.syntax import parse_shell
from distdoctor.oom.configs.shell.tree import (
    AndOr,
    Assignment,
    Bracket,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Pipeline,
    ShellSyntaxError,
    Simple,
    Word,
)
from distdoctor.oom.configs.shell.values import (
    EMPTY_AS_IT_STANDS,
    Alternative,
    Condition,
    Marks,
    Unknown,
    UnknownKind,
    Value,
    is_plain,
)

# Statements followed, rounds of functions included; real scripts have some hundred.
MAX_STEPS = 20_000

# Commands kept; a launch script starts a handful.
MAX_COMMANDS = 500

_MAX_CALLS = 12
_SHELLS = frozenset({"bash", "sh", "zsh", "/bin/bash", "/bin/sh", "/usr/bin/bash"})
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_SCHEDULER = re.compile(r"(?:SLURM|SBATCH|PBS|OMPI|PMI|PMIX|LSB|SLURMD|KUBERNETES|FLUX|SGE|COBALT)_")
_ENVIRONMENT = re.compile(
    r"HOME|USER|PWD|OLDPWD|PATH|HOSTNAME|HOST|SHELL|TMPDIR|LANG|UID|EUID|RANDOM|SECONDS|LINENO|BASH_\w+|FUNCNAME|"
    r"PIPESTATUS|IFS|PS1|OPTARG|OPTIND|MASTER_ADDR|MASTER_PORT|NODE_RANK|RANK|LOCAL_RANK|WORLD_SIZE|GROUP_RANK|PET_\w+|"
    r"PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD|CONDA_\w+|VIRTUAL_ENV|CUDA_HOME|CUDA_VISIBLE_DEVICES|HF_\w+|WANDB_\w+|"
    r"NCCL_\w+|XDG_\w+|AWS_\w+|SCRATCH|WORK|PROJECT|DISPLAY|LOGNAME|JOB_NAME"
)


@dataclass(slots=True)
class Started:
    """A command as it would be started: its fields still carry marks."""

    fields: list[str]
    line: int
    condition: Condition | None


@dataclass(slots=True)
class Document:
    """A here-document, expanded; still with marks."""

    text: str
    line: int
    target: str | None
    command: str


class _ScriptEndsError(Exception):
    """`exit`, or `return` at the top."""


class _FunctionReturnsError(Exception):
    """`return` within a function."""


class ShellRun:
    """One reading of a script: `run()`, then look at what was collected."""

    def __init__(self, nodes: list[Node], variables: dict[str, str], *, is_batch: bool) -> None:
        self.marks = Marks()
        self.line = 0
        self.expander = Expander(self.marks, self._classify, lambda: self.line)
        self.expander.variables.update(variables)
        self.lines: dict[str, int] = {}
        self.only_for: dict[str, tuple[int, int]] = {}
        """Variables that stand before a command only: which of `commands` they are set for."""
        self.commands: list[Started] = []
        self.documents: list[Document] = []
        self.unset: dict[str, Unknown] = {}
        self.sources: list[str] = []
        self.more_directives: list[Directive] = []
        self.notes: list[str] = []
        self.errors: list[ShellSyntaxError] = []
        """Of scripts within the script."""
        self._nodes = nodes
        self._assigned = assignments_in(nodes)
        self._functions: dict[str, Node] = {}
        self._given: set[str] = set()
        self._conditions: list[Condition] = []
        self._num_groups = 0
        self._steps = 0
        self._calls = 0
        self._is_batch = is_batch
        self.condition_lines: dict[str, list[int]] = {}
        """Lines of conditions that took a variable as empty, by its name."""

    def run(self) -> None:
        """Follows the script to its end."""
        try:
            self._list(self._nodes)
        except (_ScriptEndsError, _FunctionReturnsError):
            pass
        except (_TooMuchError, RecursionError):
            self.notes.append(f"the script does too much to be followed; reading stopped at line {self.line}")

    def is_known(self, value: Value) -> bool:
        """Whether nothing in a variable's value is unknown."""
        return is_plain(value if isinstance(value, str) else "".join(value))

    # -- unknown variables

    def _classify(self, name: str) -> Unknown:
        kind = self._kind(name)
        alternatives = self._assigned.get(name, ()) if kind is UnknownKind.NOT_TAKEN else ()
        unknown = Unknown(name=name, kind=kind, line=self.line, alternatives=alternatives)
        return self.unset.setdefault(name, unknown)

    def _kind(self, name: str) -> UnknownKind:
        if name in self._given:
            return UnknownKind.GIVEN
        if name.isdigit() or name in ("@", "*", "#"):
            return UnknownKind.ARGUMENT if name != "0" else UnknownKind.ENVIRONMENT
        if not name[:1].isalpha() and name[:1] != "_":
            return UnknownKind.COMMAND
        if _SCHEDULER.match(name):
            return UnknownKind.SCHEDULER
        if _ENVIRONMENT.fullmatch(name):
            return UnknownKind.ENVIRONMENT
        if self.sources:
            return UnknownKind.SOURCED
        return UnknownKind.NOT_TAKEN if name in self._assigned else UnknownKind.NEVER_SET

    def _give(self, unknowns: list[Unknown]) -> None:
        """The script ends without these: whoever runs it gives them."""
        for unknown in unknowns:
            unknown.kind = UnknownKind.GIVEN
            self._given.add(unknown.name)
            if unknown.name == "#":
                self._given.update(str(number) for number in range(1, 10))

    # -- statements

    def _list(self, nodes: list[Node]) -> bool | None:
        status: bool | None = True
        for node in nodes:
            status = self._node(node).value
        return status

    def _node(self, node: Node) -> Verdict:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise _TooMuchError
        self.line = node.line
        match node:
            case Simple():
                return self._simple(node)
            case Bracket():
                if node.kind == "[[":
                    return judge_test(test_words(node.text), self.expander)
                return self._arithmetic_command(node.text)
            case Pipeline():
                return self._pipeline(node)
            case AndOr():
                return self._and_or(node)
            case If():
                return Verdict(self._if(node))
            case Case():
                self._case(node)
            case Loop():
                self._loop(node)
            case Group():
                self._group(node)
            case Function():
                self._functions[node.name] = node.body
        return Verdict(True)

    def _pipeline(self, node: Pipeline) -> Verdict:
        verdict = Verdict(True)
        for part in node.parts:
            verdict = self._node(part)
        if node.is_negated:
            verdict.value = None if verdict.value is None else not verdict.value
        return verdict if len(node.parts) == 1 else Verdict(None if node.is_negated else True)

    def _and_or(self, node: AndOr) -> Verdict:
        verdict = self._node(node.first)
        for operator, following in node.rest:
            runs_on = operator == "&&"
            if verdict.value is (not runs_on):
                continue
            if verdict.value is None:
                self._branches([(partial(self._node, following), "a condition", node.line)], has_else=False)
                continue
            if verdict.hinges_on and _ends_script(following):
                self._give(verdict.hinges_on)
                verdict = Verdict(None)
                continue
            verdict = self._node(following)
        return verdict

    def _if(self, node: If, *, again: bool = False) -> bool | None:
        maybe: list[tuple[list[Node], str, int]] = []
        hinges_on: list[Unknown] = []
        for condition, body, line in node.branches:
            verdict = Verdict(True)
            if condition is not None:
                verdict = self._condition(condition)
                hinges_on += verdict.hinges_on
                for each in verdict.hinges_on:
                    self.condition_lines.setdefault(each.name, []).append(each.line)
            if verdict.value is False:
                continue
            if verdict.value is True and hinges_on and _body_ends_script(body) and not again:
                self._give(hinges_on)
                return self._if(node, again=True)
            if verdict.value is True and not maybe:
                return self._list(body)
            maybe.append((body, self._condition_text(condition), line))
            if verdict.value is True:
                self._follow(maybe, has_else=True)
                return None
        if maybe:
            self._follow(maybe, has_else=False)
            return None
        return True

    def _condition(self, nodes: list[Node]) -> Verdict:
        verdict = Verdict(True)
        for node in nodes:
            verdict = self._node(node)
            if not _is_decidable(node):
                verdict = Verdict(None)  # whether an ordinary command succeeds is for the machine to say
        return verdict

    def _condition_text(self, nodes: list[Node] | None) -> str:
        if nodes is None:
            return "else"
        texts = []
        for node in nodes:
            if isinstance(node, Bracket):
                texts.append(f"{node.kind} {node.text.strip()} {']]' if node.kind == '[[' else '))'}")
            elif isinstance(node, Simple):
                texts.append(" ".join(word.raw for word in node.words if isinstance(word, Word)))
        return "; ".join(texts)[:80] or "a condition"

    def _follow(self, bodies: list[tuple[list[Node], str, int]], *, has_else: bool) -> None:
        runs: list[tuple[Callable[[], object], str, int]] = [
            (partial(self._list, body), text, line) for body, text, line in bodies
        ]
        self._branches(runs, has_else=has_else)

    def _branches(self, runs: list[tuple[Callable[[], object], str, int]], *, has_else: bool) -> None:
        """Follows every branch on its own copy of the variables, then joins what came of it."""
        self._num_groups += 1
        before = dict(self.expander.variables)
        outcomes: list[tuple[dict[str, Value], Condition | None]] = []
        conditions = []
        for number, (run, text, line) in enumerate(runs):
            condition = Condition(group=self._num_groups, branch=number, num_branches=0, text=text, line=line)
            conditions.append(condition)
            self.expander.variables = dict(before)
            self._conditions.append(condition)
            try:
                run()
            except (_ScriptEndsError, _FunctionReturnsError):
                pass  # nothing follows it
            else:
                outcomes.append((self.expander.variables, condition))
            finally:
                self._conditions.pop()
        if not has_else:
            outcomes.append((before, None))
        for condition in conditions:
            condition.num_branches = len(outcomes)
        self.expander.variables = merged(before, outcomes, self.marks, self.line, self.lines)
        if not outcomes:
            raise _ScriptEndsError

    def _case(self, node: Case) -> None:
        text = self.expander.text(node.word.raw)
        unknowns = self.marks.unknowns_in(text)
        if is_plain(text) or all(each.kind in EMPTY_AS_IT_STANDS for each in unknowns):
            value = text if is_plain(text) else ""
            for patterns, body, _ in node.arms:
                if any(self._matches(value, pattern) for pattern in patterns):
                    if unknowns and _body_ends_script(body):
                        self._give(list(unknowns))
                        break
                    self._list(body)
                    return
            else:
                return
        bodies = [
            (body, f"{node.word.raw} is {'|'.join(patterns)}"[:80], line)
            for patterns, body, line in node.arms
        ]
        catches_all = any("*" in patterns for patterns, _, _ in node.arms)
        if bodies:
            self._follow(bodies, has_else=catches_all)

    def _matches(self, value: str, pattern: str) -> bool:
        expanded = self.expander.text(pattern)
        if not is_plain(expanded) or len(expanded) > 200 or expanded.count("*") > 3:
            return False
        return fnmatchcase(value[:2000], expanded)

    def _loop(self, node: Loop) -> None:
        if node.kind in ("while", "until"):
            verdict = self._condition(node.condition).value
            if verdict is (node.kind == "until"):
                return
            if verdict is None:
                self._follow([(node.body, f"{node.kind} loop", node.line)], has_else=False)
            else:
                self._list(node.body)
            return
        values = [value for word in node.words for value in self.expander.fields(word.raw)][:200]
        if node.kind == "for((":
            self._assign(node.name, self.expander.unknown(node.name, UnknownKind.LOOP))
            self._follow([(node.body, "for loop", node.line)], has_else=False)
            return
        if len(values) == 1 and is_plain(values[0]):
            self._assign(node.name, values[0])
        else:
            alternatives = tuple(
                Alternative(value=self.marks.shown(value), line=node.line) for value in values[:20]
            )
            loop = Unknown(name=node.name, kind=UnknownKind.LOOP, line=node.line, alternatives=alternatives)
            self._assign(node.name, self.marks.mark(loop))
        self._list(node.body)

    def _group(self, node: Group) -> None:
        if not node.is_subshell:
            self._list(node.body)
            return
        before = dict(self.expander.variables)
        with suppress(_ScriptEndsError):
            self._list(node.body)
        self.expander.variables = before

    def _arithmetic_command(self, text: str) -> Verdict:
        """`(( N = A * 8 ))` sets N; anything else is judged."""
        match = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*([-+*/%]?)=(?!=)(.*)", text, re.DOTALL)
        if match is None:
            return judge_arithmetic(text, self.expander)
        expression = f"{match[1]} {match[2]} ({match[3]})" if match[2] else match[3]
        self._assign(match[1], self.expander.arithmetic(expression))
        return Verdict(True)

    # -- simple commands

    def _assign(self, name: str, value: Value) -> None:
        self.expander.variables[name] = value
        self.lines[name] = self.line
        self.only_for.pop(name, None)

    def _assignment(self, node: Assignment) -> None:
        self.line = node.line
        expander = self.expander
        old = expander.variables.get(node.name)
        if isinstance(node.value, list):
            words = [field for word in node.value for field in expander.fields(word.raw)]
            words = [expander.bounded(word, node.name) for word in words[:5000]]
            if node.appends:
                words = ([old] if isinstance(old, str) else list(old or [])) + words
            if sum(map(len, words)) > 200_000 or len(words) > 5000:
                words = [expander.unknown(node.name, UnknownKind.TOO_LONG)]
            self._assign(node.name, words)
            return
        text = expander.text(node.value.raw)
        if node.index is not None:
            at = expander.arithmetic(node.index)
            items = list(old) if isinstance(old, list) else []
            if re.fullmatch(r"\d{1,4}", at) and int(at) <= len(items):
                items[int(at) : int(at) + 1] = [text]
            else:
                items.append(expander.unknown(f"{node.name}[{node.index}]", UnknownKind.COMMAND))
            self._assign(node.name, items)
            return
        if node.appends:
            if isinstance(old, list):
                first = (old[0] if old else "") + text
                self._assign(node.name, [first, *old[1:]])
                return
            text = (old or "") + text
        self._assign(node.name, expander.bounded(text, node.name))

    def _simple(self, node: Simple) -> Verdict:
        if not node.words:
            for assignment in node.assignments:
                self._assignment(assignment)
            return Verdict(True)
        name = _command_name(node)
        if name in _TESTS:
            words = [word.raw for word in node.words[1:] if isinstance(word, Word)]
            if name == "[" and words and words[-1] == "]":
                words.pop()
            return judge_test(words, self.expander)
        if name in _DECLARES:
            self._declare(node)
            return Verdict(True)
        names = [assignment.name for assignment in node.assignments]
        before = {name: self.expander.variables[name] for name in names if name in self.expander.variables}
        for assignment in node.assignments:
            self._assignment(assignment)
        first = len(self.commands)
        try:
            return self._external(node)
        finally:
            if len(self.commands) > first:
                self.only_for.update(
                    {name: (first, len(self.commands)) for name in names if name not in before}
                )
            # `A=1 command` sets A for that command alone, but readers ask for it: it stays unless it was set before.
            self.expander.variables.update(before)

    def _declare(self, node: Simple) -> None:
        raw = [word.raw for word in node.words[1:] if isinstance(word, Word)]
        if any(text.startswith(("$(", "`")) for text in raw):
            self.sources.append(raw[0][:60])  # `export $(xargs < .env)`
        for word in node.words[1:]:
            if isinstance(word, Assignment):
                self._assignment(word)
            elif "=" in word.raw and not word.raw.startswith("-"):
                name, _, value = self.expander.text(word.raw).partition("=")
                if re.fullmatch(r"[A-Za-z_]\w*", name):
                    self._assign(name, value)

    def _external(self, node: Simple) -> Verdict:
        fields: list[str] = []
        for word in node.words:
            if isinstance(word, Word):
                fields += self.expander.fields(word.raw)
            elif isinstance(word.value, Word):
                sign = "+=" if word.appends else "="
                fields.append(f"{word.name}{sign}{self.expander.text(word.value.raw)}")
        self._read_documents(node, fields)
        first = fields[0] if fields else ""
        match first:
            case ":":
                return Verdict(True)
            case "true":
                return Verdict(True)
            case "false":
                return Verdict(False)
            case "exit":
                raise _ScriptEndsError
            case "return":
                raise _FunctionReturnsError
            case "unset":
                for each in fields[1:]:
                    self.expander.variables.pop(each, None)
                return Verdict(True)
            case (
                "set"
                | "shopt"
                | "echo"
                | "printf"
                | "cd"
                | "shift"
                | "trap"
                | "ulimit"
                | "break"
                | "continue"
                | "wait"
                | "read"
                | "mapfile"
                | "readarray"
                | "module"
                | "ml"
            ):
                if first in ("module", "ml"):
                    self.sources.append(self.marks.shown(" ".join(fields[:3])))
                self._assigning_builtin(node, fields)
                return Verdict(True)
            case "source" | ".":
                self.sources.append(self.marks.shown(" ".join(fields[1:2])) or "a file")
                return Verdict(True)
            case "let":
                for each in fields[1:]:
                    self._arithmetic_command(each)
                return Verdict(True)
            case "eval" | "exec" | "command" | "nohup" | "sudo":
                if first == "eval":
                    self._nested(" ".join(fields[1:]), [], node.line)
                    return Verdict(True)
                fields = fields[1:]
        if first in ("ssh", "pdsh", "clush") and len(fields) > 2 and " " in fields[-1].strip():
            self._nested(fields[-1], fields[:-1], node.line)
            return Verdict(True)
        if first in self._functions:
            self._call(first, fields[1:])
            return Verdict(True)
        if self._script_in(fields, node.line) or not fields:
            return Verdict(True)
        self._start(fields, node.line)
        return Verdict(True)

    def _assigning_builtin(self, node: Simple, fields: list[str]) -> None:
        names = [each for each in fields[1:] if re.fullmatch(r"[A-Za-z_]\w*", each)]
        if fields[0] == "read" and names and node.documents:
            document = node.documents[0]
            text = self.expander.document(document.text) if document.expands else document.text
            self._assign(names[-1], text.strip())
        elif fields[0] in ("read", "mapfile", "readarray"):
            for each in names:
                self._assign(each, self.expander.unknown(each, UnknownKind.COMMAND))
        elif fields[0] == "set" and "--" in fields:
            self.expander.arguments = fields[fields.index("--") + 1 :]

    def _call(self, name: str, arguments: list[str]) -> None:
        if self._calls >= _MAX_CALLS:
            return
        outer, self.expander.arguments = self.expander.arguments, arguments
        self._calls += 1
        try:
            self._node(self._functions[name])
        except _FunctionReturnsError:
            pass
        finally:
            self._calls -= 1
            self.expander.arguments = outer

    def _start(self, fields: list[str], line: int) -> None:
        if len(self.commands) < MAX_COMMANDS:
            condition = self._conditions[-1] if self._conditions else None
            self.commands.append(Started(fields, line, condition))

    # -- scripts within the script

    def _script_in(self, fields: list[str], line: int) -> bool:
        """`… bash -c "script"`: its commands are started with the words before `bash` in front."""
        for at, word in enumerate(fields[:200]):
            if word.rsplit("/", 1)[-1] in _SHELLS or word in _SHELLS:
                options = fields[at + 1 :]
                number = next((n for n, option in enumerate(options) if not option.startswith("-")), None)
                flags = options[: number if number is not None else len(options)]
                if number is not None and any(
                    "c" in flag[1:] and not flag.startswith("--") for flag in flags
                ):
                    self._nested(options[number], fields[:at], line)
                    return True
                return False
        return False

    def _nested(self, text: str, outer: list[str], line: int) -> None:
        if self._calls >= _MAX_CALLS:
            return
        self._calls += 1
        start = len(self.commands)
        arguments, self.expander.arguments = self.expander.arguments, []
        try:
            tree = parse_shell(text, first_line=line)
            self.errors += tree.errors[:5]
            self._list(tree.nodes)
        except _ScriptEndsError:
            pass
        finally:
            self._calls -= 1
            self.expander.arguments = arguments
        for command in self.commands[start:]:
            command.fields = outer + command.fields
            command.line = line

    def _read_documents(self, node: Simple, fields: list[str]) -> None:
        for document in node.documents:
            self.line = document.line
            text = self.expander.document(document.text) if document.expands else document.text
            target = self.marks.shown(self.expander.text(node.output.raw)) if node.output else None
            first = self.marks.shown(fields[0]) if fields else "cat"
            if target is None and first == "tee" and len(fields) > 1:
                target = self.marks.shown(fields[-1])
            if len(self.documents) < 50:
                self.documents.append(
                    Document(self.expander.bounded(text, "EOF"), document.line, target, first)
                )
            runs_it = first.rsplit("/", 1)[-1] in ("sbatch", "bash", "sh", "srun") and target is None
            if runs_it:
                if first.endswith("sbatch"):
                    found = read_directives(self.marks.shown(text))
                    self.more_directives += found
                self._nested(text, fields if first == "srun" else [], document.line)
        self.line = node.line


class _TooMuchError(Exception):
    """More steps than any launch script needs."""


_TESTS = frozenset({"[", "test"})
_CONSTANT = frozenset({"true", "false", ":"})


def _is_decidable(node: Node) -> bool:
    """Whether a condition consists of tests alone."""
    match node:
        case Bracket():
            return True
        case Simple():
            return _command_name(node) in _TESTS | _CONSTANT
        case Pipeline():
            return len(node.parts) == 1 and _is_decidable(node.parts[0])
        case AndOr():
            return _is_decidable(node.first) and all(_is_decidable(each) for _, each in node.rest)
        case Group():
            return all(_is_decidable(each) for each in node.body)
        case _:
            return False


def _command_name(node: Simple) -> str:
    first = node.words[0] if node.words else None
    return first.raw if isinstance(first, Word) else ""


def _body_ends_script(body: list[Node]) -> bool:
    return any(_ends_script(node) for node in body)


def _ends_script(node: Node) -> bool:
    if isinstance(node, Group):
        return _body_ends_script(node.body)
    if isinstance(node, Simple):
        name = _command_name(node)
        return name in (
            "exit",
            "return",
            "usage",
            "die",
            "fail",
            "print_usage",
            "show_help",
            "help",
            "err",
            "error",
        )
    return False
