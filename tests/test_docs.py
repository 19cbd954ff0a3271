"""Pages made from the code are current; pages lead somewhere; option names get past torchrun."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def write_docs() -> object:
    specification = importlib.util.spec_from_file_location("write_docs", ROOT / "scripts" / "write_docs.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("page", "make"), [("INDEX", "check_index"), ("REFERENCE", "command_reference")])
def test_pages_made_from_the_code_are_current(page: str, make: str) -> None:
    module = write_docs()
    assert getattr(module, page).read_text() == getattr(module, make)(), "run: python scripts/write_docs.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def long_options() -> set[str]:
    return set(re.findall(r"--[a-z][a-z-]+", (ROOT / "docs" / "cli.md").read_text()))


def test_no_option_abbreviates_one_of_torchruns() -> None:
    """torchrun parses the whole line with abbreviations allowed, and would take our option for its own."""
    pytest.importorskip("torch")
    from torch.distributed.run import get_args_parser

    theirs = {option for action in get_args_parser()._actions for option in action.option_strings}
    theirs |= {option.replace("_", "-") for option in theirs}
    clashes = {
        mine: each for mine in long_options() for each in theirs if mine != each and each.startswith(mine)
    }
    assert not {mine: each for mine, each in clashes.items() if mine not in ("--help", "--version")}
