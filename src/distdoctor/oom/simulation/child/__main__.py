"""The child: answers one question and ends. `python -m distdoctor.oom.simulation.child QUESTION FD`.

Prints of torch and of a user's own module go to stderr; the answer goes to a pipe of its own.
"""

from __future__ import annotations

import os
import sys
import warnings

from distdoctor.oom.facts.simulated import SelfCheck, SimulationFailure
from distdoctor.oom.job import resolve
from distdoctor.oom.simulation.messages import Answer, Question, decode_question, encode_answer

_MAX_REASON = 400


def main(argv: list[str]) -> int:
    """Answer; the exit status is always 0, for a failure is an answer."""
    question, descriptor = decode_question(argv[0]), int(argv[1])
    os.dup2(2, 1)
    warnings.filterwarnings("ignore")
    answer = _answer(question)
    with os.fdopen(descriptor, "wb") as pipe:
        pipe.write(encode_answer(answer))
    return 0


def _answer(question: Question) -> Answer:
    if question.role is None:
        return Answer(self_check=_self_check())
    role = question.role
    try:
        if question.own_module is not None:
            from distdoctor.oom.simulation.child.own_module import simulate_module

            return Answer(role=simulate_module(question.own_module, role))
        from distdoctor.oom.simulation.child.simulate import simulate_role

        if question.settings is None:
            raise ValueError("neither a job nor a module")
        return Answer(
            role=simulate_role(
                resolve(question.settings),
                role,
                fold=question.fold,
                capacities_bytes=question.capacities_bytes,
            )
        )
    except Exception as error:  # foreign code runs: torch, and perhaps a user's own
        return Answer(failure=_failure(error, role.words, role.rank))


def _self_check() -> SelfCheck:
    from distdoctor.oom.simulation.child.self_check import self_check

    try:
        return self_check()
    except Exception as error:  # torch of any version
        return SelfCheck(simulated_bytes=None, measured_bytes=None, reason=_reason(error))


def _failure(error: Exception, words: str, rank: int) -> SimulationFailure:
    from distdoctor.oom.simulation.child.blame import blame_of

    blame = blame_of(error)
    return SimulationFailure(role=words, rank=rank, reason=_reason(error), op=blame.op, module=blame.module)


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
