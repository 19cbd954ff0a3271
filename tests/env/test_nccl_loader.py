"""The dynamic loader's choice, in the order of ld.so(8), on trees of tiny libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from distdoctor.env.collect.loader import parse_loader_cache, read_loader_config, resolve_library
from distdoctor.env.collect.world import World
from tiny_elf import AARCH64, build_elf, build_loader_cache, build_nccl

ASKING = "/site/torch/lib/libtorch_cuda.so"
NCCL = "libnccl.so.2"


def world(tmp_path: Path, files: dict[str, bytes], **environ: str) -> World:
    for path, data in files.items():
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return World(root=tmp_path, environ=environ)


def chosen(given: World, loaded_by: tuple[str, ...] = ()) -> tuple[str, str] | None:
    config = read_loader_config(given)
    found = resolve_library(given, NCCL, wanted_by=ASKING, loaded_by=loaded_by, config=config)
    return None if found is None else (found.path, found.why)


def everywhere(**search: str) -> dict[str, bytes]:
    nccl = build_nccl("2.27.5")
    return {
        ASKING: build_elf(needed=(NCCL,), **search),  # type: ignore[arg-type]
        f"/site/nvidia/nccl/lib/{NCCL}": nccl,
        f"/opt/old/{NCCL}": nccl,
        f"/cached/{NCCL}": nccl,
        f"/usr/lib64/{NCCL}": nccl,
        "/etc/ld.so.cache": build_loader_cache([(NCCL, f"/cached/{NCCL}")]),
    }


WHEEL = "$ORIGIN/../../nvidia/nccl/lib"


def test_rpath_goes_before_ld_library_path(tmp_path: Path) -> None:
    found = chosen(world(tmp_path, everywhere(rpath=WHEEL), LD_LIBRARY_PATH="/opt/old"))
    assert found is not None
    assert found[0].endswith("/nvidia/nccl/lib/libnccl.so.2")
    assert "RPATH" in found[1]


def test_ld_library_path_goes_before_runpath(tmp_path: Path) -> None:
    found = chosen(world(tmp_path, everywhere(runpath=WHEEL), LD_LIBRARY_PATH="/none:/opt/old"))
    assert found == (f"/opt/old/{NCCL}", "LD_LIBRARY_PATH entry 2 (/opt/old)")


def test_runpath_switches_rpath_off(tmp_path: Path) -> None:
    found = chosen(world(tmp_path, everywhere(rpath=WHEEL, runpath="/nowhere"), LD_LIBRARY_PATH="/opt/old"))
    assert found is not None
    assert found[0] == f"/opt/old/{NCCL}"


def test_preload_goes_before_everything(tmp_path: Path) -> None:
    found = chosen(world(tmp_path, everywhere(rpath=WHEEL), LD_PRELOAD=f"/opt/old/{NCCL}"))
    assert found is not None
    assert found[0] == f"/opt/old/{NCCL}"
    assert found[1].startswith("LD_PRELOAD")


def test_the_executables_rpath_counts_as_in_conda(tmp_path: Path) -> None:
    files = everywhere()
    files["/conda/bin/python"] = build_elf(rpath="$ORIGIN/../lib")
    files[f"/conda/lib/{NCCL}"] = build_nccl("2.21.5")
    found = chosen(world(tmp_path, files, LD_LIBRARY_PATH="/opt/old"), loaded_by=("/conda/bin/python",))
    assert found is not None
    assert found[0].endswith("/conda/bin/../lib/libnccl.so.2")


def test_then_the_cache_then_the_default_folders(tmp_path: Path) -> None:
    files = everywhere()
    assert chosen(world(tmp_path / "a", files)) == (f"/cached/{NCCL}", "/etc/ld.so.cache")
    del files["/etc/ld.so.cache"]
    found = chosen(world(tmp_path / "b", files))
    assert found is not None
    assert found[0] == f"/usr/lib64/{NCCL}"


def test_without_a_cache_its_configuration_is_read(tmp_path: Path) -> None:
    files = everywhere()
    files["/etc/ld.so.cache"] = b"junk"
    files["/etc/ld.so.conf"] = b"include /etc/ld.so.conf.d/*.conf\n"
    files["/etc/ld.so.conf.d/nccl.conf"] = b"# ours\n/opt/old\n"
    assert chosen(world(tmp_path, files)) == (f"/opt/old/{NCCL}", "/etc/ld.so.conf")


def test_a_library_of_another_machine_is_passed_over(tmp_path: Path) -> None:
    files = everywhere(runpath=WHEEL)
    files[f"/opt/old/{NCCL}"] = build_nccl("2.27.5", machine=AARCH64)
    found = chosen(world(tmp_path, files, LD_LIBRARY_PATH="/opt/old"))
    assert found is not None
    assert found[0].endswith("/nvidia/nccl/lib/libnccl.so.2")


def test_nothing_found_is_none(tmp_path: Path) -> None:
    assert chosen(world(tmp_path, {ASKING: build_elf(needed=(NCCL,))})) is None


@pytest.mark.parametrize(
    "data", [b"", b"glibc-ld.so.cache1.1", b"glibc-ld.so.cache1.1" + b"\xff" * 28, bytes(100)]
)
def test_a_damaged_cache_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError):
        parse_loader_cache(data)


def test_this_machines_cache_reads_as_ldconfig_prints_it() -> None:
    cache, ldconfig = Path("/etc/ld.so.cache"), Path("/sbin/ldconfig")
    if not cache.exists() or not ldconfig.exists():
        pytest.skip("no glibc loader cache on this machine")
    printed = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, timeout=30, check=True).stdout
    wanted = sorted(line.split(" => ")[1] for line in printed.splitlines() if " => " in line)
    assert (
        sorted(path for paths in parse_loader_cache(cache.read_bytes()).values() for path in paths) == wanted
    )
