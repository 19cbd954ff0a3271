"""A command that starts training, taken apart: the scheduler's options, the launcher's, the program, its arguments.

`srun -N 2 … torchrun --nproc_per_node 8 … pretrain_gpt.py --num-layers 32 …` in any combination.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from distdoctor.oom.configs.commands.option_words import MODULE_LAUNCHERS, is_option
from distdoctor.oom.configs.shell.script import Command
from distdoctor.oom.configs.shell.values import Condition, Token

_SCHEDULERS = frozenset({"srun", "mpirun", "mpiexec", "flux", "jsrun", "aprun"})
_PYTHON = re.compile(r"python(?:\d(?:\.\d+)?)?|pypy3?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_SHORT_WITH_NUMBER = re.compile(r"(-[A-Za-z])=?(\d+)")

# Of torchrun, accelerate and deepspeed: options that stand alone. All others take a value.
_SWITCHES = frozenset(
    {
        *(
            "standalone",
            "no_python",
            "run_path",
            "m",
            "module",
            "use_env",
            "multi_gpu",
            "use_deepspeed",
            "use_fsdp",
        ),
        *(
            "use_megatron_lm",
            "same_network",
            "cpu",
            "mps",
            "no_local_rank",
            "enable_each_rank_log",
            "force_multi",
        ),
        *(
            "no_ssh",
            "bind_cores_to_rank",
            "no_ssh_check",
            "fsdp_offload_params_",
            "debug",
            "q",
            "quiet",
            "u",
            "l",
        ),
        *("exclusive", "label", "overlap", "exact", "unbuffered", "pty", "verbose", "v", "no_kill"),
        *("tp_use", "use_xpu", "ipex", "logical_launch", "fp8_enabled", "allow_run_as_root", "oversubscribe"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of the program: its name without dashes, its values, where it stands."""

    name: str
    values: tuple[Token, ...]
    line: int
    condition: Condition | None = None

    @property
    def text(self) -> str:
        """The values as one text; `true` for a switch."""
        return " ".join(value.text for value in self.values) if self.values else "true"

    @property
    def is_known(self) -> bool:
        """Whether nothing of it is unknown, conditions aside."""
        return not any(value.unknowns for value in self.values)


@dataclass(slots=True, kw_only=True)
class LaunchLine:
    """A command that starts training."""

    line: int
    scheduler: str | None = None
    """`srun`, `mpirun` …"""
    launcher: str | None = None
    """`torchrun`, `accelerate`, `deepspeed`."""
    program: str | None = None
    """The script or module; None when it could not be told from the options."""
    scheduler_options: dict[str, Token] = field(default_factory=dict)
    launcher_options: dict[str, Token] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[Token, ...] = ()
    condition: Condition | None = None


def launch_line(command: Command) -> LaunchLine | None:
    """The parts of a command that starts a Python program or a launcher; None for any other command."""
    tokens = list(command.tokens)
    found = LaunchLine(line=command.line, condition=command.condition)
    at = 0
    options: dict[str, Token] | None = None
    while at < len(tokens):
        word = tokens[at].text
        base = word.rsplit("/", 1)[-1]
        if options is None and _ASSIGNMENT.match(word):
            name, _, value = word.partition("=")
            found.environment[name] = value
        elif base in _SCHEDULERS and found.launcher is None:
            found.scheduler, options = base, found.scheduler_options
        elif base in ("torchrun", "deepspeed"):
            found.launcher, options = base, found.launcher_options
        elif base == "accelerate" and _text(tokens, at + 1) == "launch":
            found.launcher, options = "accelerate", found.launcher_options
            at += 1
        elif _PYTHON.fullmatch(base):
            at = _after_python(tokens, at + 1)
            module = _text(tokens, at + 1) if _text(tokens, at) == "-m" else ""
            if module in MODULE_LAUNCHERS:
                found.launcher, options = MODULE_LAUNCHERS[module], found.launcher_options
                at += 1
            else:
                return _with_program(found, tokens, at)
        elif options is not None and word.startswith("-") and len(word) > 1:
            if found.launcher and word in ("-m", "--module"):
                return _with_program(found, tokens, at)
            at = _option(tokens, at, options, of_scheduler=options is found.scheduler_options)
        elif found.launcher is not None or base.endswith(".py"):
            return _with_program(found, tokens, at)
        at += 1
    return found if found.launcher is not None else None


def arguments_of(tokens: tuple[Token, ...]) -> tuple[list[Argument], list[Token]]:
    """The program's arguments as argparse would pair them, and tokens that belong to no option.

    A quoted `"--fp8-format hybrid"` counts as two words here; `Argument.line` and conditions are kept.
    """
    arguments: list[Argument] = []
    loose: list[Token] = []
    name: str | None = None
    start: Token | None = None
    values: list[Token] = []

    def finish() -> None:
        if name is not None and start is not None:
            arguments.append(
                Argument(name=name, values=tuple(values), line=start.line, condition=start.condition)
            )

    for token in _split_words(tokens):
        if is_option(token.text):
            finish()
            option, equals, value = token.text.lstrip("-").partition("=")
            name, start, values = option, token, []
            if equals:
                values.append(
                    Token(text=value, line=token.line, unknowns=token.unknowns, condition=token.condition)
                )
        elif name is None:
            loose.append(token)
        else:
            values.append(token)
    finish()
    return arguments, loose


def has_word_with_blank(tokens: tuple[Token, ...]) -> Token | None:
    """A single word such as "--fp8-format hybrid", quoted so that the program sees one argument."""
    for token in tokens:
        if re.match(r"--[A-Za-z][\w-]*[ \t]+\S", token.text):
            return token
    return None


def _split_words(tokens: tuple[Token, ...]) -> list[Token]:
    words: list[Token] = []
    for token in tokens:
        if re.match(r"--[A-Za-z][\w-]*[ \t]+\S", token.text):
            words += [
                Token(text=word, line=token.line, unknowns=token.unknowns, condition=token.condition)
                for word in token.text.split()
            ]
        else:
            words.append(token)
    return words


def _text(tokens: list[Token], at: int) -> str:
    return tokens[at].text if at < len(tokens) else ""


def _after_python(tokens: list[Token], at: int) -> int:
    """Past Python's own switches: `-u`, `-O`, `-X x`; `-m` stays."""
    while (word := _text(tokens, at)).startswith("-") and word not in ("-m", "-c", "-"):
        at += 2 if word in ("-X", "-W") else 1
    return at


def _with_program(found: LaunchLine, tokens: list[Token], at: int) -> LaunchLine | None:
    word = _text(tokens, at)
    if word in ("-m", "--module"):
        at += 1
        word = _text(tokens, at)
    if word in ("-c", "-", ""):
        return found if found.launcher else None
    found.program = word
    found.arguments = tuple(tokens[at + 1 :])
    return found


def _option(tokens: list[Token], at: int, options: dict[str, Token], *, of_scheduler: bool) -> int:
    """Reads one option; returns where its last word stands."""
    token = tokens[at]
    word = token.text
    joined = _SHORT_WITH_NUMBER.fullmatch(word)
    if joined:
        options[joined[1].lstrip("-")] = _value(token, joined[2])
        return at
    name, equals, value = word.lstrip("-").partition("=")
    name = name.replace("-", "_")
    if equals:
        options[name] = _value(token, value)
        return at
    following = tokens[at + 1] if at + 1 < len(tokens) else None
    takes_none = name in _SWITCHES or following is None or following.text.startswith("--")
    if of_scheduler and following is not None and not takes_none:
        base = following.text.rsplit("/", 1)[-1]
        takes_none = bool(_PYTHON.fullmatch(base)) or base in ("torchrun", "accelerate", "deepspeed", "bash")
    if takes_none or following is None:
        options[name] = _value(token, "true")
        return at
    options[name] = following
    return at + 1


def _value(token: Token, text: str) -> Token:
    return Token(text=text, line=token.line, unknowns=token.unknowns, condition=token.condition)
