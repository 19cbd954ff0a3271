"""Starts one child for each kind of rank, and one for the self-check; none may hang, and all that came is kept."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from distdoctor.bounded_child import STEP_FD, ChildEnd, kill_running, run_bounded
from distdoctor.oom.facts.simulated import ModelStates, SelfCheck, Simulation, SimulationFailure
from distdoctor.oom.job import Job
from distdoctor.oom.settings import Settings
from distdoctor.oom.simulation.inputs import parse_inputs
from distdoctor.oom.simulation.messages import (
    Answer,
    OwnModule,
    Question,
    decode_answer,
    encode_question,
)
from distdoctor.oom.simulation.own_job import job_of_module
from distdoctor.oom.simulation.roles import Role, roles_of
from distdoctor.oom.simulation.torchtitan import TitanModel

_CHILD = "distdoctor.oom.simulation.child"
# Answers are some 100 KB.
_MAX_ANSWER = 8 << 20
# A child holds about 0.4 GB and keeps one core busy. Our own choice.
_MAX_AT_ONCE = 4
_POLL_S = 0.1


def simulate(
    job: Job,
    settings: Settings,
    *,
    timeout_s: float,
    capacities_bytes: Sequence[int] = (),
    all_stages: bool = False,
    fold: bool = True,
    checks_itself: bool = True,
    torchtitan: TitanModel | None = None,
) -> Simulation:
    """Every kind of rank of a job, in children of this interpreter. `timeout_s` is for each of them;
    `capacities_bytes`: what the allocator can have on the GPU in question; `torchtitan`: whose model it is, where not
    ours."""
    roles = roles_of(job, all_stages=all_stages)
    questions = [
        Question(
            settings=settings,
            role=role,
            fold=fold,
            capacities_bytes=tuple(capacities_bytes),
            torchtitan=torchtitan,
        )
        for role in roles
    ]
    return _ask(questions, timeout_s, checks_itself=checks_itself)


def simulate_module(
    module: OwnModule,
    *,
    timeout_s: float,
    capacities_bytes: Sequence[int] = (),
    checks_itself: bool = True,
) -> Simulation:
    """A user's own module: every rank does the same, so that one stands for all. Raises UsageError for a job that it
    cannot be trained in."""
    parse_inputs(module.inputs)
    ranks = job_of_module(module).mesh.num_ranks
    role = Role(
        words="every rank" if ranks > 1 else "your module", stage=0, rank=0, num_ranks=ranks, chunks=()
    )
    question = Question(own_module=module, role=role, capacities_bytes=tuple(capacities_bytes))
    return _ask([question], timeout_s, checks_itself=checks_itself)


def _ask(questions: Sequence[Question], timeout_s: float, *, checks_itself: bool) -> Simulation:
    every = [*questions, *([Question()] if checks_itself else [])]
    at_once = max(1, min(_MAX_AT_ONCE, os.cpu_count() or 1))
    with ThreadPoolExecutor(max_workers=at_once) as pool:
        asked = [pool.submit(_one, question, timeout_s) for question in every]
        try:
            answers = [each.result() for each in asked]
        except BaseException:  # Ctrl-C, or SIGTERM
            _give_up(asked)
            raise
    return Simulation(
        roles=tuple(answer.role for answer in answers if answer.role is not None),
        failures=tuple(answer.failure for answer in answers if answer.failure is not None),
        self_check=next((answer.self_check for answer in answers if answer.self_check is not None), None),
    )


def _give_up(asked: Sequence[Future[Answer]]) -> None:
    """End every child that runs, and start no other."""
    waiting = {each for each in asked if not each.cancel()}
    while waiting:
        # Again, for one may just have been started.
        kill_running()
        waiting = wait(waiting, timeout=_POLL_S).not_done


def _one(question: Question, timeout_s: float) -> Answer:
    argv = [sys.executable, "-m", _CHILD, encode_question(question), STEP_FD]
    try:
        end = run_bounded(argv, _environ(), timeout_s, keep_step_bytes=_MAX_ANSWER)
    except OSError as error:
        return _failed(question, f"the child does not start: {error.strerror or error}")
    answer = decode_answer(end.steps)
    if answer is None:
        longer = f"give it longer: --timeout {2 * timeout_s:g}s" if end.timed_out else ""
        return _failed(question, _why(end, timeout_s, is_own=question.own_module is not None), longer)
    if answer.states is not None:
        # A user's module was built, and the child did not come to an end.
        failed = _failed(question, _why(end, timeout_s, is_own=True))
        return _with_states(failed, answer.states)
    return answer


def _environ() -> dict[str, str]:
    """One thread is enough where nothing is computed, and a launcher's variables concern no child."""
    launcher = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    kept = {name: value for name, value in os.environ.items() if name not in launcher}
    return {**kept, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONUNBUFFERED": "1"}


def _why(end: ChildEnd, timeout_s: float, *, is_own: bool) -> str:
    if end.timed_out:
        return f"it was not done after {timeout_s:g} s (--timeout)"
    if end.returncode is not None and end.returncode < 0:
        return _signal_words(-end.returncode)
    if is_own:
        return f"your code ended the process, with status {end.returncode}, before the simulation was done"
    lines = [line.strip() for line in end.stderr.splitlines() if line.strip()]
    return lines[-1][:300] if lines else f"the child ended with status {end.returncode} and said nothing"


def _signal_words(number: int) -> str:
    try:
        name = f" ({signal.Signals(number).name})"
    except ValueError:
        name = ""
    # The kernel ends a process that takes too much by this signal; all others have other reasons.
    why = "; too little memory on this host?" if number == signal.SIGKILL else ""
    return f"the child was ended by signal {number}{name}{why}"


def _with_states(answer: Answer, states: ModelStates) -> Answer:
    if answer.failure is None:
        return answer
    return Answer(failure=replace(answer.failure, states=states))


def _failed(question: Question, reason: str, advice: str = "") -> Answer:
    if question.role is None:
        return Answer(self_check=SelfCheck(simulated_bytes=None, measured_bytes=None, reason=reason))
    role = question.role
    return Answer(failure=SimulationFailure(role=role.words, rank=role.rank, reason=reason, advice=advice))
