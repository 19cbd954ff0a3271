"""Whatever a user's code raises, in one line: what stood in the way, where in their files, and what to do about it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from traceback import walk_tb

from torch import nn

from distdoctor.oom.simulation.child.blame import blame_of
from distdoctor.oom.simulation.child.own.advice import advice_for
from distdoctor.oom.training.base import CannotRunError

_MAX_TEXT = 240
# What no other kind of tensor would change.
_OF_ANY_TENSORS = (
    OSError,
    EOFError,
    MemoryError,
    ImportError,
    RecursionError,
    KeyboardInterrupt,
    SyntaxError,
)
_OURS = Path(__file__).resolve().parents[4]


class OwnModuleError(CannotRunError):
    """The user's module cannot be simulated; the text says why in one line."""

    def __init__(
        self,
        reason: str,
        *,
        advice: str = "",
        op: str | None = None,
        module: str | None = None,
        may_be_of_fake_tensors: bool = False,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.advice = advice
        self.op = op
        self.module = module
        self.may_be_of_fake_tensors = may_be_of_fake_tensors
        """With real tensors it might not be raised."""


@contextlib.contextmanager
def users_code(doing: str, folder: Path, names: Mapping[int, str] | None = None) -> Iterator[None]:
    """Around code of the user's: whatever it raises becomes an OwnModuleError. `doing`: `build_model()`; `names`: dotted
    names of modules by their ids."""
    try:
        yield
    except OwnModuleError:
        raise
    except SystemExit as error:
        raise OwnModuleError(
            f"{doing} called sys.exit({_text(error)!r}){_where(error, folder)}",
            advice="let it return instead, and parse no command line in it",
        ) from None
    except BaseException as error:  # foreign code
        raise explained(error, doing, folder, names or {}) from None


def explained(error: BaseException, doing: str, folder: Path, names: Mapping[int, str]) -> OwnModuleError:
    """The error in words, with the op and the module where they are known."""
    blame = blame_of(error)
    kind, text = type(error).__name__, _text(error)
    known = advice_for(kind, text, blame.op)
    what = known.words or (f"{kind}: {text}" if text else kind)
    if blame.op is not None and not known.words:
        what += f" ({blame.op.removesuffix('.default')})"
    return OwnModuleError(
        f"{doing}: {what}{_where(error, folder)}",
        advice=known.advice,
        op=blame.op if known.is_of_op else None,
        module=_module_of(error, names) or blame.module,
        may_be_of_fake_tensors=not isinstance(error, _OF_ANY_TENSORS),
    )


def _text(error: BaseException) -> str:
    """The first line of an exception; of one that cannot be printed, nothing."""
    try:
        lines = str(error).splitlines()
    except Exception:  # foreign code
        return ""
    return next((line.strip() for line in lines if line.strip()), "")[:_MAX_TEXT]


def _where(error: BaseException, folder: Path) -> str:
    """`, at my_pkg/model.py line 42`: the innermost line of the user's."""
    found = ""
    for frame, line in walk_tb(error.__traceback__):
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(folder) and "site-packages" not in path.parts and _OURS not in path.parents:
            found = f", at {path.relative_to(folder)} line {line}"
    return found


def _module_of(error: BaseException, names: Mapping[int, str]) -> str | None:
    """The innermost module whose method was running."""
    found = None
    for frame, _ in walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if isinstance(owner, nn.Module) and id(owner) in names:
            found = names[id(owner)] or type(owner).__name__
    return found
