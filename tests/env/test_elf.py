"""The dynamic section of ELF files: our own tiny ones, torch's real ones, and junk."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distdoctor.env.elf import read_elf_dynamic, section_range
from tiny_elf import AARCH64, X86_64, build_elf


@pytest.mark.parametrize(("bits", "machine"), [(64, X86_64), (64, AARCH64), (32, 3)])
def test_names_and_search_paths_are_read(tmp_path: Path, bits: int, machine: int) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(
        build_elf(
            soname="libx.so.2",
            needed=("liba.so.1", "libb.so"),
            rpath="$ORIGIN/../lib:/opt/lib",
            bits=bits,
            machine=machine,
        )
    )
    dynamic = read_elf_dynamic(path)
    assert dynamic.soname == "libx.so.2"
    assert dynamic.needed == ("liba.so.1", "libb.so")
    assert dynamic.rpath == ("$ORIGIN/../lib", "/opt/lib")
    assert dynamic.runpath == ()
    assert (dynamic.bits, dynamic.machine) == (bits, machine)


def test_runpath_is_told_from_rpath(tmp_path: Path) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(build_elf(runpath="$ORIGIN"))
    dynamic = read_elf_dynamic(path)
    assert dynamic.runpath == ("$ORIGIN",)
    assert dynamic.rpath == ()


def test_a_section_is_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "libx.so"
    path.write_bytes(build_elf(constants=b"some text"))
    where = section_range(path, ".rodata")
    assert where is not None
    offset, size = where
    assert path.read_bytes()[offset : offset + size] == b"some text"
    assert section_range(path, ".nowhere") is None


@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"GIF89a" + bytes(100), b"\x7fELF\x02\x01" + b"\xff" * 58])
def test_junk_is_refused_with_value_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "junk"
    path.write_bytes(data)
    with pytest.raises(ValueError):
        read_elf_dynamic(path)


@settings(max_examples=200, deadline=None)
@given(
    cut=st.integers(0, 400), flips=st.lists(st.tuples(st.integers(0, 399), st.integers(0, 255)), max_size=6)
)
def test_damaged_files_never_raise_anything_else(
    tmp_path_factory: pytest.TempPathFactory, cut: int, flips: list[tuple[int, int]]
) -> None:
    data = bytearray(build_elf(soname="libx.so", needed=("liba.so",), rpath="/opt", constants=b"text"))
    for at, value in flips:
        if at < len(data):
            data[at] = value
    path = tmp_path_factory.mktemp("elf") / "libx.so"
    path.write_bytes(bytes(data[: len(data) - cut] if cut < len(data) else b""))
    for read in (read_elf_dynamic, lambda each: section_range(each, ".rodata")):
        with contextlib.suppress(ValueError):
            read(path)


def test_torchs_own_libraries_are_read() -> None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        pytest.skip("torch is not installed")
    dynamic = read_elf_dynamic(Path(spec.origin).parent / "lib" / "libtorch_python.so")
    assert dynamic.soname == "libtorch_python.so"
    assert any(name.startswith("libtorch_cpu.so") for name in dynamic.needed)
    assert any("$ORIGIN" in each for each in (*dynamic.rpath, *dynamic.runpath))
