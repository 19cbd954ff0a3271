"""The job's interpreter and the files of its torch: chosen, listed and read without importing anything."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from distdoctor.env.collect.interpreter import ask_interpreter
from distdoctor.env.collect.python import collect_python
from distdoctor.env.collect.torch import collect_torch
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Unread, UnreadError
from distdoctor.env.facts.torch import PythonFacts
from distdoctor.report.model import SkipCause
from fake_torch import GOOD, write_torch
from fake_world import make_world

SITE = "/venv/lib/python3.12/site-packages"
VERSION_PY = "__version__ = '2.9.1+cu128'\ndebug = False\ncuda: Optional[str] = '12.8'\ngit_version = 'ab12'\nhip: Optional[str] = None\n"
METADATA = """Metadata-Version: 2.4
Name: torch
Requires-Dist: filelock
Requires-Dist: nvidia-nccl-cu12==2.27.5; platform_system == "Linux"
Requires-Dist: nvidia-cudnn-cu12 (==9.10.2.21) ; platform_system == "Linux" and python_version < "3.15"
Requires-Dist: nvidia-never==1.0; sys_platform == "win32"
Requires-Dist: nvidia-extra==1.0; extra == "all"
Requires-Dist: nvidia-cublas<=13.1,>=13.0

Requires-Dist: nvidia-in-the-description==1.0
"""


def python(*search_path: str) -> PythonFacts:
    return PythonFacts(executable="/venv/bin/python", version="3.12.1", search_path=search_path or (SITE,))


def test_version_cuda_and_pins_are_read_from_the_files(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        {
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch/version.py": VERSION_PY,
            f"{SITE}/torch/_C.cpython-312-x86_64-linux-gnu.so": "",
            f"{SITE}/torch/lib/libtorch_cuda.so": "",
            f"{SITE}/torch/lib/libsomething.so": "",
            f"{SITE}/torch-2.9.1+cu128.dist-info/METADATA": METADATA,
        },
    )
    facts = collect_torch(world, python())
    assert facts.found is True
    assert (facts.version, facts.cuda_build, facts.hip_build) == ("2.9.1+cu128", "12.8", None)
    assert facts.is_cpu_build is False
    assert facts.is_local is False
    assert facts.has_native_code is True
    assert facts.bundled_libraries == ("libtorch_cuda.so",)
    assert facts.dist_versions == ("2.9.1+cu128",)
    assert facts.required_nvidia == {"nvidia-nccl-cu12": "2.27.5", "nvidia-cudnn-cu12": "9.10.2.21"}


def test_pins_through_cuda_toolkit_are_expanded(tmp_path: Path) -> None:
    torch = "Requires-Dist: cuda-toolkit[cublas]==13.0.2; platform_system == 'Linux'\nRequires-Dist: nvidia-nccl-cu13==2.28.9\n"
    toolkit = (
        "Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux' or sys_platform == 'win32') and extra == 'cublas'\n"
        "Requires-Dist: nvidia-npp==13.0.1.2.*; (sys_platform == 'linux') and extra == 'npp'\n"
    )
    world = make_world(
        tmp_path,
        {
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch/version.py": VERSION_PY,
            f"{SITE}/torch-2.11.0.dist-info/METADATA": torch,
            f"{SITE}/cuda_toolkit-13.0.2.dist-info/METADATA": toolkit,
        },
    )
    assert collect_torch(world, python()).required_nvidia == {
        "nvidia-cublas": "13.1.0.3.*",
        "nvidia-nccl-cu13": "2.28.9",
    }


@pytest.mark.parametrize(
    ("text", "is_cpu"),
    [
        ("__version__ = '1.5.0'\ncuda = '10.2'\n", False),
        ("__version__ = '2.9.1'\ncuda: Optional[str] = None\nhip: Optional[str] = None\n", True),
        ("__version__ = '2.6.0+rocm6.2'\ncuda = None\nhip = '6.2.41133'\n", False),
        ("__version__ = '2.8.0+xpu'\ncuda = None\nhip = None\nxpu = '20250101'\n", False),
        ("__version__ = '2.9.1'\n", None),
    ],
)
def test_cpu_builds_are_told_by_cuda_alone(tmp_path: Path, text: str, is_cpu: bool | None) -> None:
    world = make_world(tmp_path, {f"{SITE}/torch/__init__.py": "", f"{SITE}/torch/version.py": text})
    assert collect_torch(world, python()).is_cpu_build is is_cpu


def test_version_py_is_never_run(tmp_path: Path) -> None:
    text = f"__version__ = '2.9.1'\nopen({str(tmp_path / 'ran')!r}, 'w')\ncuda = __import__('os').getcwd()\n"
    world = make_world(tmp_path, {f"{SITE}/torch/__init__.py": "", f"{SITE}/torch/version.py": text})
    assert collect_torch(world, python()).version == "2.9.1"
    assert not (tmp_path / "ran").exists()


def test_a_local_folder_hides_the_installed_one(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        {
            "/job/torch/__init__.py": "",
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch/version.py": VERSION_PY,
        },
    )
    facts = collect_torch(world, python("/job", SITE))
    assert facts.path == "/job/torch"
    assert facts.is_local is True
    assert facts.shadowed_path == f"{SITE}/torch"
    assert facts.has_native_code is False
    assert "is_cpu_build" in facts.unread


def test_a_local_file_hides_it_too(tmp_path: Path) -> None:
    world = make_world(tmp_path, {"/job/torch.py": "", f"{SITE}/torch/__init__.py": ""})
    facts = collect_torch(world, python("/job", SITE))
    assert facts.path == "/job/torch.py"
    assert facts.version is None


def test_a_folder_without_init_hides_nothing(tmp_path: Path) -> None:
    world = make_world(tmp_path, {"/job/torch/data.txt": "", f"{SITE}/torch/__init__.py": ""})
    assert collect_torch(world, python("/job", SITE)).path == f"{SITE}/torch"


def test_a_target_folder_with_metadata_is_no_shadow(tmp_path: Path) -> None:
    world = make_world(
        tmp_path, {"/opt/t/torch/__init__.py": "", "/opt/t/torch-2.9.1.dist-info/METADATA": ""}
    )
    assert collect_torch(world, python("/opt/t")).is_local is False


def test_two_metadata_folders_and_leftovers_are_kept(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        {
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch-2.9.1.dist-info/METADATA": "",
            f"{SITE}/torch-2.4.0-py3.12.egg-info": "",
            f"{SITE}/~orch-2.8.0.dist-info/METADATA": "",
        },
    )
    facts = collect_torch(world, python())
    assert sorted(facts.dist_versions) == ["2.4.0", "2.9.1"]
    assert facts.leftovers == (f"{SITE}/~orch-2.8.0.dist-info",)


def test_a_linked_lib64_is_not_counted_twice(tmp_path: Path) -> None:
    world = make_world(
        tmp_path,
        {
            f"{SITE}/torch/__init__.py": "",
            f"{SITE}/torch-2.9.1.dist-info/METADATA": "",
            "/venv/lib64": "-> lib",
        },
    )
    facts = collect_torch(world, python(SITE, SITE.replace("/lib/", "/lib64/")))
    assert facts.dist_versions == ("2.9.1",)


def test_no_torch_is_found_false_not_unknown(tmp_path: Path) -> None:
    facts = collect_torch(make_world(tmp_path, {f"{SITE}/numpy/__init__.py": ""}), python())
    assert facts.found is False


def test_an_editable_torch_is_unknown(tmp_path: Path) -> None:
    world = make_world(tmp_path, {f"{SITE}/__editable___torch_2_9_0_finder.py": ""})
    facts = collect_torch(world, python())
    assert facts.found is None
    assert "editable" in facts.unread["found"].reason


def test_an_unknown_interpreter_leaves_everything_unknown(tmp_path: Path) -> None:
    unread = Unread(cause=SkipCause.ABSENT, reason="/x/python: there is no such file")
    facts = collect_torch(make_world(tmp_path, {}), PythonFacts(unread={"search_path": unread}))
    assert facts.found is None
    assert facts.unread["found"].reason == unread.reason


# ---- interpreters


def test_our_own_interpreter_sees_the_torch_of_this_environment() -> None:
    if not any(Path(entry, "torch", "__init__.py").exists() for entry in sys.path if entry):
        pytest.skip("torch is not installed in this environment")
    facts = collect_python(World(environ=dict(os.environ)), None)
    assert facts.executable == sys.executable
    assert facts.chosen_by == "runs distdoctor"
    assert facts.distributions["torch"]
    assert "pytest" not in facts.distributions


def test_pythonpath_comes_before_site_packages(tmp_path: Path) -> None:
    environ = write_torch(tmp_path, GOOD)
    world = World(environ=environ)
    facts = collect_torch(world, collect_python(world, None))
    assert facts.path == f"{tmp_path}/torch"
    given = collect_torch(world, collect_python(world, sys.executable))
    assert given.path == f"{tmp_path}/torch"


def test_the_search_path_of_a_child_is_that_of_python_c(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": f"{tmp_path}/a:{tmp_path}/b"}
    answer = ask_interpreter(sys.executable, environ)
    assert answer.search_path[:3] == (os.getcwd(), f"{tmp_path}/a", f"{tmp_path}/b")


def script(folder: Path, text: str) -> str:
    path = folder / "python"
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def refusal(executable: str, timeout_s: float = 20) -> UnreadError:
    with pytest.raises(UnreadError) as error:
        ask_interpreter(executable, {"PATH": os.environ["PATH"]}, timeout_s)
    return error.value


def test_wrong_paths_are_explained(tmp_path: Path) -> None:
    assert "no such file" in str(refusal(f"{tmp_path}/none"))
    assert "folder" in str(refusal(str(tmp_path)))
    plain = tmp_path / "plain"
    plain.write_text("")
    plain.chmod(0o644)
    assert "may not be executed" in str(refusal(str(plain)))


def test_programs_that_are_no_python_are_explained(tmp_path: Path) -> None:
    assert "does not run as a Python" in str(refusal(script(tmp_path, "#!/bin/sh\nexit 3\n")))
    assert "is no Python interpreter" in str(refusal(script(tmp_path, "#!/bin/sh\necho hello\n")))
    assert "does not start" in str(refusal(script(tmp_path, "#!/no/such/interpreter\n")))


def test_an_interpreter_that_hangs_is_given_up(tmp_path: Path) -> None:
    error = refusal(script(tmp_path, "#!/bin/sh\nexec sleep 60\n"), timeout_s=0.5)
    assert error.unread.cause is SkipCause.TIMED_OUT


def test_a_chatty_start_up_file_does_not_disturb(tmp_path: Path) -> None:
    path = script(tmp_path, f'#!/bin/sh\necho "welcome {{}}"\nexec {sys.executable} "$@"\n')
    assert ask_interpreter(path, {"PATH": os.environ["PATH"]}).version.startswith("3.")


def test_a_given_path_that_fails_leaves_the_reason() -> None:
    facts = collect_python(World(environ={}), "/no/such/python")
    assert facts.executable is None
    assert "no such file" in facts.unread["executable"].reason


def test_python_of_path_is_taken_when_ours_has_no_torch(tmp_path: Path) -> None:
    """Ours is made blind by a world in which none of its folders is there."""
    world = make_world(tmp_path, {}, environ={"PATH": "/usr/bin"})
    facts = collect_python(world, None)
    assert facts.executable == sys.executable
    assert facts.chosen_by == "runs distdoctor"
    assert facts.distributions == {}
