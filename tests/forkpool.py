"""Ranks forked from one warm process: an import of torch costs 3 s, a fork a hundredth of that.

    with ForkPool(torch=True, scenarios=Path("scenarios.py")) as pool:
        outcomes = pool.run("all_reduce", world_size=4, args={...}, limit_s=10)
        running = pool.start(...)          # several at once; most of a fault test is waiting
        outcomes = running.outcomes()

The warm process imports once and stays single-threaded, so that forking is safe in whatever process the tests
run. Pools of one test session share it; it loads each file of scenarios once. For each run it forks a launcher, which forks `world_size` ranks that call `function(rank, world_size, **args)` with
torchrun's variables set, and a store host beside them that outlives every rank, as torchrun's agent does.
Ranks that are still there after `limit_s` are killed, by process id.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib.util
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
import traceback
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType, TracebackType
from typing import Any

import psutil

# After this long without an answer the pool itself is taken for dead.
_ANSWER_GRACE_S = 120.0

# Ranks of more runs than this would wait for a processor rather than for one another.
_MAX_RUNS = 3


@dataclass(frozen=True)
class Outcome:
    """How one rank ended: `returned` (with its value), `raised` (with the text), `died` or `hung`."""

    rank: int
    ending: str
    value: Any
    exit_code: int
    """Negative for a signal; -9 for ranks that were killed because they hung."""
    seconds: float


class Run:
    """One run under way."""

    def __init__(self, warm: _Warm, answer: Path, until: float) -> None:
        self._warm = warm
        self._answer = answer
        self._until = until

    def outcomes(self) -> list[Outcome]:
        """How each rank ended, by rank, once all have."""
        while not self._answer.exists():
            assert time.monotonic() < self._until, "the fork pool does not answer"
            assert self._warm.is_alive(), "the fork pool has died"
            time.sleep(0.02)
        return [Outcome(**outcome) for outcome in json.loads(self._answer.read_text())]


class _Warm:
    """Handle of a warm process, which every pool of its kind uses."""

    def __init__(self, *, torch: bool) -> None:
        self._answers = TemporaryDirectory()
        self._num_requests = 0
        self._process = subprocess.Popen(
            [sys.executable, __file__, "torch" if torch else "plain"],
            # Connecting to a TCPStore asks DNS for the name of 127.0.0.1; a name server that is busy would
            # cost five seconds each time.
            env={**os.environ, "RES_OPTIONS": "timeout:1 attempts:1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )

    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Mapping[str, Any], *, limit_s: float) -> Run:
        assert self._process.stdin is not None
        self._num_requests += 1
        answer = Path(self._answers.name, f"{self._num_requests}.json")
        self._process.stdin.write(json.dumps({**request, "answer": str(answer)}) + "\n")
        self._process.stdin.flush()
        return Run(self, answer, time.monotonic() + limit_s + _ANSWER_GRACE_S)

    def ranks(self) -> list[psutil.Process]:
        return psutil.Process(self._process.pid).children(recursive=True)

    def end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._answers.cleanup()


_warm_processes: dict[bool, _Warm] = {}


def _warm_process(*, torch: bool) -> _Warm:
    found = _warm_processes.get(torch)
    if found is None or not found.is_alive():
        found = _warm_processes[torch] = _Warm(torch=torch)
        atexit.register(found.end)
    return found


class ForkPool:
    """The functions of one file, to be run by ranks that are forked from a warm process."""

    def __init__(self, *, torch: bool, scenarios: Path) -> None:
        """A pool for the functions in the file `scenarios`; with `torch` it is imported beforehand, too."""
        self._warm = _warm_process(torch=torch)
        self._scenarios = str(scenarios)

    def start(
        self,
        function: str,
        *,
        world_size: int,
        args: Mapping[str, Any] | None = None,
        environ: Mapping[str, str] | None = None,
        limit_s: float = 30.0,
        store: bool = False,
        stop_store_after_s: float | None = None,
    ) -> Run:
        """Start a function on all ranks; three runs at most are under way, later ones wait their turn.

        Arguments and results travel as JSON.
        """
        request = {
            "scenarios": self._scenarios,
            "function": function,
            "world_size": world_size,
            "args": dict(args or {}),
            "environ": dict(environ or {}),
            "limit_s": limit_s,
            "store": store,
            "stop_store_after_s": stop_store_after_s,
        }
        return self._warm.ask(request, limit_s=limit_s)

    def run(self, function: str, **options: Any) -> list[Outcome]:
        """`start`, and wait for the outcomes."""
        return self.start(function, **options).outcomes()

    def __enter__(self) -> ForkPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait for runs that are under way, and see that they leave nobody behind."""
        ranks = self._warm.ranks()
        self._warm.ask({"function": None}, limit_s=60).outcomes()
        _, alive = psutil.wait_procs(ranks, timeout=10)
        for rank in alive:
            rank.kill()
        assert not alive, "ranks were left behind"


# --- inside the warm process ---


def serve(with_torch: bool) -> None:
    """Fork a launcher for each request until standard input ends, then wait for them.

    A request without a function is answered once every launcher before it has ended.
    """
    if with_torch:
        import torch
        import torch.distributed

        torch.set_num_threads(1)
    modules: dict[str, ModuleType] = {}
    launchers: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        while launchers and (request["function"] is None or len(launchers) >= _MAX_RUNS):
            launchers.discard(os.wait()[0])
        if request["function"] is None:
            _write(request, [])
            continue
        path = request["scenarios"]
        if path not in modules:
            modules[path] = _load(Path(path))
            # What is there now is no garbage of ranks: their collections need not look through it.
            gc.collect()
            gc.freeze()
        pid = os.fork()
        if pid == 0:
            _answer(modules[path], request)
        launchers.add(pid)
    for pid in launchers:
        os.waitpid(pid, 0)


def _write(request: dict[str, Any], outcomes: list[dict[str, Any]]) -> None:
    answer = Path(request["answer"])
    answer.with_suffix(".part").write_text(json.dumps(outcomes))
    answer.with_suffix(".part").rename(answer)


def _answer(module: ModuleType, request: dict[str, Any]) -> None:
    exit_code = 1
    try:
        os.close(0)
        _write(request, _run(getattr(module, request["function"]), request))
        exit_code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(exit_code)


def _load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"forked_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _run(function: Callable[..., Any], request: dict[str, Any]) -> list[dict[str, Any]]:
    port = _free_port()
    world_size, limit_s = request["world_size"], request["limit_s"]
    launch = {
        "WORLD_SIZE": str(world_size),
        "LOCAL_WORLD_SIZE": str(world_size),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": str(uuid.uuid4()),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo",
        **request["environ"],
    }
    store = _fork_store(port) if request["store"] else None
    began = time.monotonic()
    pipes: dict[int, int] = {}
    pids: dict[int, int] = {}
    for rank in range(world_size):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            os.environ.update(launch, RANK=str(rank), LOCAL_RANK=str(rank))
            _be_rank(function, rank, world_size, request["args"], writer)
        os.close(writer)
        pipes[reader], pids[rank] = rank, pid
    stop_store_at = None
    if store is not None and request["stop_store_after_s"] is not None:
        stop_store_at = began + request["stop_store_after_s"]
    outcomes = _collect(pipes, pids, began, began + limit_s, store, stop_store_at)
    if store is not None:
        os.kill(store, signal.SIGKILL)
        os.waitpid(store, 0)
    return outcomes


def _be_rank(
    function: Callable[..., Any], rank: int, world_size: int, args: dict[str, Any], writer: int
) -> None:
    began = time.monotonic()
    try:
        ending, value = "returned", function(rank, world_size, **args)
    except BaseException as error:
        ending, value = "raised", f"{type(error).__name__}: {error}\n{traceback.format_exc()}"
    try:
        with os.fdopen(writer, "w") as stream:
            json.dump([ending, value, time.monotonic() - began], stream)
    finally:
        os._exit(0 if ending == "returned" else 1)


def _collect(
    pipes: dict[int, int],
    pids: dict[int, int],
    began: float,
    until: float,
    store: int | None,
    stop_store_at: float | None,
) -> list[dict[str, Any]]:
    said: dict[int, bytes] = dict.fromkeys(pids, b"")
    open_pipes = set(pipes)
    ended: dict[int, float] = {}
    while open_pipes and time.monotonic() < until:
        if store is not None and stop_store_at is not None and time.monotonic() >= stop_store_at:
            os.kill(store, signal.SIGSTOP)
            stop_store_at = None
        for pipe in select.select(list(open_pipes), [], [], 0.05)[0]:
            data = os.read(pipe, 1 << 20)
            said[pipes[pipe]] += data
            if not data:
                open_pipes.remove(pipe)
                ended[pipes[pipe]] = time.monotonic() - began
    outcomes = []
    for pipe, rank in pipes.items():
        os.close(pipe)
        hung = pipe in open_pipes
        if hung:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[rank], signal.SIGKILL)
        exit_code = os.waitstatus_to_exitcode(os.waitpid(pids[rank], 0)[1])
        ending, value, seconds = "hung" if hung else "died", None, ended.get(rank, time.monotonic() - began)
        if said[rank] and not hung:
            ending, value, seconds = json.loads(said[rank])
        outcomes.append(
            {"rank": rank, "ending": ending, "value": value, "exit_code": exit_code, "seconds": seconds}
        )
    return outcomes


def _fork_store(port: int) -> int:
    """A process that hosts the TCPStore and nothing else, ready when this returns."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        from torch.distributed import TCPStore

        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        os.write(writer, b"ready")
        while store is not None:
            signal.pause()
        os._exit(0)
    os.close(writer)
    assert os.read(reader, 5) == b"ready"
    os.close(reader)
    return pid


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


if __name__ == "__main__":
    serve(sys.argv[1] == "torch")
