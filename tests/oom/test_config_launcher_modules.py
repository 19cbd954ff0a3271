"""`python -m MODULE`: both readers of a training command know the same launchers."""

from __future__ import annotations

import pytest

from distdoctor.oom.configs.commands.command_line import find_launch
from distdoctor.oom.configs.commands.launch_line import launch_line
from distdoctor.oom.configs.commands.option_words import MODULE_LAUNCHERS
from distdoctor.oom.configs.shell.script import read_script
from distdoctor.oom.configs.text.tree import Entry


@pytest.mark.parametrize("module", MODULE_LAUNCHERS)
def test_both_readers_know_a_module_that_is_a_launcher(module: str) -> None:
    text = f"python -m {module} train.py --steps 3"
    (command,) = read_script(text).commands
    line = launch_line(command)
    launch = find_launch([Entry(name="", value=word, line=1) for word in text.split()])
    assert line is not None
    assert line.launcher == MODULE_LAUNCHERS[module]
    assert line.program == "train.py"
    assert launch is not None
    assert launch.launchers[0].value.split()[0] == line.launcher
    assert launch.script is not None
    assert launch.script.value == "train.py"


def test_any_other_module_is_the_program() -> None:
    (command,) = read_script("python -m train.main --steps 3").commands
    line = launch_line(command)
    assert line is not None
    assert (line.launcher, line.program) == (None, "train.main")
