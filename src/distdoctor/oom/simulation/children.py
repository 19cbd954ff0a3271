"""Starts one child for each kind of rank, and one for the self-check; none may hang, and all that came is kept."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from distdoctor.bounded_child import STEP_FD, ChildEnd, run_bounded
from distdoctor.oom.facts.simulated import SelfCheck, Simulation, SimulationFailure
from distdoctor.oom.job import Job
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.messages import (
    Answer,
    OwnModule,
    Question,
    decode_answer,
    encode_question,
)
from distdoctor.oom.simulation.roles import Role, roles_of

_CHILD = "distdoctor.oom.simulation.child"
# Answers are some 100 KB.
_MAX_ANSWER = 8 << 20
# A child holds about 0.4 GB and keeps one core busy. Our own choice.
_MAX_AT_ONCE = 4


def simulate(
    job: Job,
    settings: Settings,
    *,
    timeout_s: float,
    capacities_bytes: Sequence[int] = (),
    all_stages: bool = False,
    fold: bool = True,
    checks_itself: bool = True,
) -> Simulation:
    """Every kind of rank of a job, in children of this interpreter. `timeout_s` is for each of them;
    `capacities_bytes`: what the allocator can have on the GPU in question."""
    roles = roles_of(job, all_stages=all_stages)
    questions = [
        Question(settings=settings, role=role, fold=fold, capacities_bytes=tuple(capacities_bytes))
        for role in roles
    ]
    return _ask(questions, timeout_s, checks_itself=checks_itself)


def simulate_module(module: OwnModule, *, timeout_s: float, checks_itself: bool = True) -> Simulation:
    """A user's own module on one rank."""
    role = Role(words="your module", stage=0, rank=0, num_ranks=1, chunks=())
    return _ask([Question(own_module=module, role=role)], timeout_s, checks_itself=checks_itself)


def _ask(questions: Sequence[Question], timeout_s: float, *, checks_itself: bool) -> Simulation:
    every = [*questions, *([Question()] if checks_itself else [])]
    at_once = max(1, min(_MAX_AT_ONCE, os.cpu_count() or 1))
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        answers = list(pool.map(lambda question: _one(question, timeout_s), every))
    return Simulation(
        roles=tuple(answer.role for answer in answers if answer.role is not None),
        failures=tuple(answer.failure for answer in answers if answer.failure is not None),
        self_check=next((answer.self_check for answer in answers if answer.self_check is not None), None),
    )


def _one(question: Question, timeout_s: float) -> Answer:
    argv = [sys.executable, "-m", _CHILD, encode_question(question), STEP_FD]
    try:
        end = run_bounded(argv, _environ(), timeout_s, keep_step_bytes=_MAX_ANSWER)
    except OSError as error:
        return _failed(question, f"the child does not start: {error.strerror or error}")
    answer = decode_answer(end.steps)
    return answer if answer is not None else _failed(question, _why(end, timeout_s))


def _environ() -> dict[str, str]:
    """One thread is enough where nothing is computed, and a launcher's variables concern no child."""
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in launcher}
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}


def _why(end: ChildEnd, timeout_s: float) -> str:
    if end.timed_out:
        return f"it was not done after {timeout_s:g} s (--timeout)"
    if end.returncode is not None and end.returncode < 0:
        return f"the child was ended by signal {-end.returncode}; too little memory on this host?"
    lines = [line.strip() for line in end.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"the child ended with status {end.returncode} and said nothing"


def _failed(question: Question, reason: str) -> Answer:
    if question.role is None:
        return Answer(self_check=SelfCheck(simulated_bytes=None, measured_bytes=None, reason=reason))
    return Answer(failure=SimulationFailure(role=question.role.words, rank=question.role.rank, reason=reason))
