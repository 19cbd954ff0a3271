"""The child: answers one question and ends. `python -m distdoctor.oom.simulation.child QUESTION FD`.

Prints of torch and of a user's own module go to stderr; the answer goes to a pipe of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace

from distdoctor.oom.facts.simulated import ModelStates, RoleSimulation, SelfCheck, SimulationFailure
from distdoctor.oom.job import resolve
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.messages import (
    Answer,
    OwnModule,
    Question,
    decode_question,
    encode_answer,
)
from distdoctor.oom.simulation.roles import Role
from distdoctor.oom.simulation.torchtitan import WITHOUT_TITAN

_ESTIMATE = "take the formula's figures: `distdoctor oom estimate` with the same options"
_MAX_REASON = 400
_PR_SET_PDEATHSIG = 1
"""linux/prctl.h"""


def main(argv: list[str]) -> int:
    """Answer; the exit status is always 0, for a failure is an answer."""
    question, descriptor = decode_question(argv[0]), int(argv[1])
    _end_with_parent(descriptor)
    os.dup2(2, 1)
    # Programs that a user's module starts have no business with it.
    os.set_inheritable(descriptor, False)
    warnings.filterwarnings("ignore")
    with os.fdopen(descriptor, "wb") as pipe:

        def tell(answer: Answer) -> None:
            pipe.write(encode_answer(answer))
            pipe.flush()

        tell(_answer(question, tell))
    return 0


def _end_with_parent(descriptor: int) -> None:
    """Nobody waits for an answer once whoever asked was killed: then the kernel ends this process, too."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    reader = select.poll()
    # A pipe that nobody reads any more is in error, whatever is asked: it may have happened before the line above.
    reader.register(descriptor, 0)
    if reader.poll(0):
        os._exit(1)


def _answer(question: Question, tell: Callable[[Answer], None]) -> Answer:
    if question.role is None:
        return Answer(self_check=_self_check())
    role = question.role
    try:
        if question.own_module is not None:
            return _of_own_module(question.own_module, role, question.capacities_bytes, tell)
        if question.settings is None:
            raise ValueError("neither a job nor a module")
        return Answer(role=_of_job(question, question.settings, role))
    except Exception as error:  # foreign code runs: torch, and perhaps a user's own
        failure = _failure(error, role.words, role.rank)
        if question.torchtitan is not None:
            failure = replace(failure, advice=WITHOUT_TITAN)
        return Answer(failure=failure)


def _of_job(question: Question, settings: Settings, role: Role) -> RoleSimulation:
    job = resolve(settings)
    if question.torchtitan is not None:
        from distdoctor.oom.simulation.child.torchtitan_program import simulate_torchtitan

        return simulate_torchtitan(
            question.torchtitan,
            job,
            role,
            fold=question.fold,
            capacities_bytes=question.capacities_bytes,
        )
    from distdoctor.oom.simulation.child.simulate import simulate_role

    return simulate_role(job, role, fold=question.fold, capacities_bytes=question.capacities_bytes)


def _of_own_module(
    module: OwnModule, role: Role, capacities_bytes: tuple[int, ...], tell: Callable[[Answer], None]
) -> Answer:
    from distdoctor.oom.simulation.child.own_module import OwnModuleFailed, simulate_module

    def tell_states(states: ModelStates) -> None:
        tell(Answer(states=states))

    try:
        found = simulate_module(module, role, capacities_bytes=capacities_bytes, tell=tell_states)
    except OwnModuleFailed as failed:
        return Answer(failure=failed.failure)
    return Answer(role=found)


def _self_check() -> SelfCheck:
    from distdoctor.oom.simulation.child.self_check import self_check

    try:
        return self_check()
    except Exception as error:  # torch of any version
        return SelfCheck(simulated_bytes=None, measured_bytes=None, reason=_reason(error))


def _failure(error: Exception, words: str, rank: int) -> SimulationFailure:
    from distdoctor.oom.simulation.child.blame import blame_of
    from distdoctor.oom.training.base import CannotRunError

    blame = blame_of(error)
    if blame.refused is not None:
        return SimulationFailure(
            role=words,
            rank=rank,
            reason=f"torch's DTensor cannot do {blame.refused}, here or in the job",
            advice="take another --optimizer or --optimizer-loop, if it was in the optimizer's step",
        )
    # Where no program can be built `oom reproduce` would not build one either.
    advice = _ESTIMATE if isinstance(error, CannotRunError) else ""
    return SimulationFailure(
        role=words, rank=rank, reason=_reason(error), op=blame.op, module=blame.module, advice=advice
    )


def _reason(error: Exception) -> str:
    """The innermost cause, in one line."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    kind = type(error).__name__
    text = first if kind == "CannotRunError" else f"{kind}: {first}" if first else kind
    return text[:_MAX_REASON]


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Without torch's teardown, which takes long and may hang on process groups.
    os._exit(code)
