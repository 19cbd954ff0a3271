"""A stack in one line: the frames that say who asked, innermost first."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

from distdoctor.oom.facts.snapshot import Frame, Stack
from distdoctor.oom.snapshots.categories import is_installed, is_library

NO_STACK = "(no stack)"

# As many as fit a line of a terminal together with a number. Our own choice.
MAX_FRAMES = 4

# Frames through which every call of a module goes.
_PLUMBING = re.compile(r"_call_impl|_wrapped_call_impl|decorate_context|_fn|inner|wrapper|__call__|<module>")


def stack_text(stack: Stack | None, *, max_frames: int = MAX_FRAMES) -> str:
    """`block.py:88 forward < model.py:41 forward < train.py:210 step`; `(no stack)` where none was recorded."""
    if stack is None:
        return NO_STACK
    return " < ".join(frame_text(each) for each in _telling(stack.frames, max_frames)) or NO_STACK


def frame_text(frame: Frame) -> str:
    """`model.py:41 forward`; of C++ the function alone."""
    name = frame.name[:60]
    # C++ frames of torch have no file, or `??`.
    file = PurePosixPath(frame.filename.replace("\\", "/")).name if frame.filename not in ("", "??") else ""
    return f"{file}:{frame.line} {name}" if file else name


def _telling(frames: tuple[Frame, ...], most: int) -> list[Frame]:
    """The innermost frame that is no plumbing, then those of the job's own code, then of other packages."""
    plain = [each for each in frames if not _PLUMBING.fullmatch(each.name)] or list(frames)
    python = [each for each in plain if each.filename.endswith(".py")] or plain
    chosen = python[:1]
    for wanted in (
        [each for each in python if not is_installed(each)],
        [each for each in python if is_installed(each) and not is_library(each)],
        python,
    ):
        chosen += [each for each in wanted if each not in chosen][: most - len(chosen)]
        if len(chosen) > 1:
            break
    order = {id(each): place for place, each in enumerate(frames)}
    return sorted(chosen[:most], key=lambda each: order[id(each)])
