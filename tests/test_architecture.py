"""The house holds: who may import whom, what runs untrusted text, and what every check brings along."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "distdoctor"
FILES = sorted(SOURCE.rglob("*.py"))

# Rooms that hold a diagnosis. They do not know one another; new ones are added here as they are built.
CAPABILITIES = ("env", "nccl_bench", "oom", "straggler", "hang")

SHARED = ("report", "ranks", "units", "errors", "exit_codes", "evidence", "pasted", "nvml", "torch_private")

# Run inside a child process by path, and may use what the child's interpreter has.
CHILD_SCRIPTS = {"env/collect/torch_probe_child.py"}

# Imported by a function that needs them, never at start-up; tests/test_import_cost.py watches.
LAZY = ("report/render/html.py", "nccl_bench/analysis/samples.py", "straggler/")

# Commands that measure import torch in their own process; nothing else does.
MEASURING = (
    "torch_private/",
    "nccl_bench/measure/",
    "ranks/group/",
    "oom/training/",
    "oom/tracking/",
    "oom/simulation/child/",
    "oom/reproduction/rank/",
)


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def names_in(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@functools.cache
def imports_of(path: Path, *, top_level_only: bool = False) -> tuple[str, ...]:
    """Dotted names that a file imports, at any depth or at module level only."""
    tree = tree_of(path)
    return tuple(names_in(iter(tree.body) if top_level_only else ast.walk(tree)))


def room_of(path: Path) -> str:
    relative = path.relative_to(SOURCE)
    return relative.parts[0].removesuffix(".py")


def relative_name(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def top_of(name: str) -> str:
    return name.split(".", maxsplit=1)[0]


def test_every_file_is_looked_at() -> None:
    """The rules below hold for each of FILES, and name every file and import that breaks them."""
    rooms = {room_of(path) for path in FILES}
    assert {"report", "ranks", "cli", "env", "nccl_bench", "oom"} <= rooms
    assert all(
        imports_of(path) for path in FILES if path.name != "__init__.py" and "import " in path.read_text()
    )


def wrong_direction(path: Path, name: str) -> str | None:
    """Why a file of its room may not import this name; None if it may."""
    if not name.startswith("distdoctor."):
        return None
    room, target = room_of(path), name.split(".")[1]
    if room not in ("cli", "__main__") and target == "cli":
        return "nobody imports cli"
    if room in CAPABILITIES and target != room and target in CAPABILITIES:
        return "capabilities do not know one another"
    if room in ("report", "ranks") and target not in SHARED:
        return f"{room} knows no capability"
    return None


def test_imports_point_inwards() -> None:
    wrong = [
        f"{relative_name(path)} imports {name}: {why}"
        for path in FILES
        for name in imports_of(path)
        if (why := wrong_direction(path, name))
    ]
    assert wrong == []


def test_torch_is_imported_only_where_it_may_be() -> None:
    others = [
        path
        for path in FILES
        if relative_name(path) not in CHILD_SCRIPTS and not relative_name(path).startswith(MEASURING)
    ]
    assert [relative_name(path) for path in others if "torch" in map(top_of, imports_of(path))] == []


def test_only_one_module_imports_pynvml() -> None:
    importers = {relative_name(path) for path in FILES if "pynvml" in imports_of(path)}
    assert importers == {"nvml.py"}


def test_heavy_modules_are_not_imported_at_module_level() -> None:
    """`--help` and prologs pay for what is imported at the top."""
    heavy = {"numpy", "pynvml", "jinja2", "pydantic", "yaml", "torch"}
    wrong = [
        f"{relative_name(path)} imports {name}"
        for path in FILES
        if not relative_name(path).startswith((*LAZY, *MEASURING))
        for name in imports_of(path, top_level_only=True)
        if top_of(name) in heavy
    ]
    assert wrong == []


def test_checks_do_not_touch_the_world() -> None:
    """A check is a pure function: no files, processes, clocks or environment."""
    forbidden = {"os", "subprocess", "socket", "psutil", "pathlib", "time", "shutil"}
    checks = [path for path in FILES if "checks" in path.parts]
    assert checks
    wrong = [
        f"{relative_name(path)} imports {name}"
        for path in checks
        for name in imports_of(path)
        if top_of(name) in forbidden or name.startswith("distdoctor.env.collect")
    ]
    assert wrong == []


FORBIDDEN_CALLS = {
    ("eval",): "eval runs what text says",
    ("exec",): "exec runs what text says",
    ("pickle", "load"): "a pickle runs what it says",
    ("pickle", "loads"): "a pickle runs what it says",
    ("torch", "load"): "torch.load unpickles",
    ("yaml", "load"): "yaml.load constructs objects; use safe_load",
    ("os", "system"): "a shell reads text as commands",
    ("os", "popen"): "a shell reads text as commands",
    ("dist", "all_gather_object"): "object collectives unpickle what a peer sends",
    ("dist", "gather_object"): "object collectives unpickle what a peer sends",
    ("dist", "broadcast_object_list"): "object collectives unpickle what a peer sends",
}


def dotted(node: ast.expr) -> tuple[str, ...]:
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.Attribute):
        return (*dotted(node.value), node.attr)
    return ()


def forbidden_calls(tree: ast.AST) -> list[str]:
    """What promise 10 of docs/design.md forbids, found in a syntax tree."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        for forbidden, why in FORBIDDEN_CALLS.items():
            if name[-len(forbidden) :] == forbidden and (len(forbidden) > 1 or len(name) == 1):
                found.append(f"line {node.lineno}: {'.'.join(name)}: {why}")
        for keyword in node.keywords:
            if keyword.arg == "shell" and getattr(keyword.value, "value", True) is not False:
                found.append(f"line {node.lineno}: shell={ast.unparse(keyword.value)}")
        if name and name[-1].endswith("_object") and "gather" in name[-1]:
            found.append(f"line {node.lineno}: {'.'.join(name)}")
    return found


def test_nothing_runs_what_evidence_says() -> None:
    assert [
        f"{relative_name(path)}: {call}" for path in FILES for call in forbidden_calls(tree_of(path))
    ] == []


def test_nothing_imports_an_unpickler() -> None:
    """Pickles are read by oom/snapshots/unpickle.py, which has no code that imports or calls what a file names."""
    unpicklers = {"pickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle"}
    assert [relative_name(path) for path in FILES if unpicklers & set(imports_of(path))] == []


@pytest.mark.parametrize(
    "code",
    [
        "eval(text)",
        "import pickle; pickle.loads(data)",
        "subprocess.run(command, shell=True)",
        "torch.load(path)",
        "yaml.load(stream)",
        "torch.distributed.all_gather_object(out, value)",
        "os.system(command)",
    ],
)
def test_the_lint_sees_what_is_forbidden(code: str) -> None:
    assert forbidden_calls(ast.parse(code))


# At every line of a text: white space that may run on over the following lines, which costs the square of blank lines.
RUNS_OVER_LINES = re.compile(r"\^(?:\((?:\?:)?)*\\s[*+{]")


def slow_on_blank_lines(tree: ast.AST) -> list[str]:
    """Patterns for lines of a whole text that take a run of blank lines anew from each of them: `[ \\t]*` does not."""
    return [
        f"line {node.lineno}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and any(
            isinstance(part, ast.Attribute) and part.attr in ("MULTILINE", "M") for part in ast.walk(node)
        )
        and any(
            isinstance(part, ast.Constant)
            and isinstance(part.value, str)
            and RUNS_OVER_LINES.search(part.value)
            for part in ast.walk(node)
        )
    ]


def test_no_pattern_takes_the_square_of_blank_lines() -> None:
    assert [
        f"{relative_name(path)}: {place}" for path in FILES for place in slow_on_blank_lines(tree_of(path))
    ] == []


def test_the_lint_sees_what_is_slow() -> None:
    assert slow_on_blank_lines(ast.parse(r"re.compile(r'^(?:\s*x)', re.MULTILINE | re.ASCII)"))
    assert not slow_on_blank_lines(ast.parse(r"re.compile(r'^[ \t]*x\s*', re.MULTILINE)"))
    assert not slow_on_blank_lines(ast.parse(r"re.compile(r'^\s*x')"))


def test_every_check_has_its_page_and_every_page_its_check() -> None:
    from distdoctor.env.checks.all import ENV_CHECKS
    from distdoctor.env.checks.job import JOB_CHECKS
    from distdoctor.env.expect import BASELINE_ID, EXPECTED_ID
    from distdoctor.nccl_bench.checks.all import BENCH_CHECKS
    from distdoctor.oom.checks.all import OOM_CHECK_IDS
    from distdoctor.straggler.checks.all import STRAGGLER_CHECKS

    in_tuples = (*ENV_CHECKS, *JOB_CHECKS, *BENCH_CHECKS, *STRAGGLER_CHECKS)
    ids = [*(check.id for check in in_tuples), *OOM_CHECK_IDS]
    assert len(ids) == len(set(ids)), "two checks share an id"
    others = {EXPECTED_ID, BASELINE_ID, "rank-missing", "host-missing", "compare-differs"}
    pages = {path.stem for path in (SOURCE.parents[1] / "docs" / "checks").glob("*.md")} - {"README"}
    assert pages == set(ids) | others
