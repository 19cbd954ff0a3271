"""NCCL on disk, predicted and loaded, on trees of tiny libraries; nothing of it can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

from distdoctor.env.collect.nccl import collect_nccl
from distdoctor.env.collect.nccl_banner import read_nccl_banner
from distdoctor.env.collect.world import World
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.torch import PythonFacts, TorchFacts, TorchProbe
from tiny_elf import build_elf, build_loader_cache, build_nccl

SITE = "/env/lib/python3.12/site-packages"
WHEEL = f"{SITE}/nvidia/nccl/lib/libnccl.so.2"
SYSTEM = "/usr/lib/x86_64-linux-gnu/libnccl.so.2"
TORCH_CUDA = f"{SITE}/torch/lib/libtorch_cuda.so"
RPATH = "$ORIGIN/../../nvidia/nccl/lib"

PYTHON = PythonFacts(executable="/env/bin/python", prefix="/env", search_path=(SITE,))
TORCH = TorchFacts(
    found=True,
    path=f"{SITE}/torch",
    version="2.9.0",
    cuda_build="12.8",
    required_nvidia={"nvidia-nccl-cu12": "2.27.5"},
)


def base(**search: str) -> dict[str, bytes]:
    return {
        "/env/bin/python": build_elf(),
        TORCH_CUDA: build_elf(needed=("libnccl.so.2",), **(search or {"runpath": RPATH})),  # type: ignore[arg-type]
        WHEEL: build_nccl("2.27.5"),
        f"{SITE}/nvidia_nccl_cu12-2.27.5.dist-info/METADATA": b"",
    }


def collect(
    tmp_path: Path, files: dict[str, bytes], probe: TorchProbe | None = None, **environ: str
) -> NcclFacts:
    for path, data in files.items():
        target = tmp_path / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return collect_nccl(World(root=tmp_path, environ=environ), PYTHON, TORCH, probe)


def test_the_wheels_own_library_is_found_predicted_and_expected(tmp_path: Path) -> None:
    facts = collect(tmp_path, base())
    (library,) = facts.libraries
    assert (library.path, library.version, library.cuda) == (WHEEL, "2.27.5", "12.8")
    assert (library.owner, library.found_by) == ("nvidia-nccl-cu12 2.27.5", "site-packages")
    assert facts.predicted_version == facts.expected_version == "2.27.5"
    assert facts.expected_path == WHEEL
    assert facts.loaded_path is None
    assert "loaded_path" in facts.unread


def test_an_older_library_in_ld_library_path_is_predicted_with_the_reason(tmp_path: Path) -> None:
    facts = collect(
        tmp_path, {**base(), "/opt/old/libnccl.so.2": build_nccl("2.18.5")}, LD_LIBRARY_PATH="/opt/old"
    )
    assert facts.predicted_path == "/opt/old/libnccl.so.2"
    assert facts.predicted_version == "2.18.5"
    assert facts.predicted_why == "LD_LIBRARY_PATH entry 1 (/opt/old)"


def test_both_wheels_own_the_file_that_they_share(tmp_path: Path) -> None:
    facts = collect(tmp_path, {**base(), f"{SITE}/nvidia_nccl_cu13-2.29.7.dist-info/METADATA": b""})
    assert facts.libraries[0].owner == "nvidia-nccl-cu12 2.27.5 and nvidia-nccl-cu13 2.29.7"


def test_copies_everywhere_are_listed_once_each(tmp_path: Path) -> None:
    files = {
        **base(),
        SYSTEM: build_nccl("2.15.5"),
        "/var/lib/dpkg/info/libnccl2.list": f"/.\n{SYSTEM}\n".encode(),
        "/etc/ld.so.cache": build_loader_cache([("libnccl.so.2", SYSTEM)]),
        "/conda/lib/libnccl.so.2": build_nccl("2.21.5"),
        "/conda/conda-meta/nccl-2.21.5.1-h0.json": b"{}",
        "/opt/hpcx-v2.20/nccl_rdma_sharp_plugin/lib/libnccl.so": build_nccl("2.20.3"),
        "/usr/local/nccl2/lib/libnccl.so.2": build_nccl("2.19.3"),
        "/usr/lib/aarch64-linux-gnu/libnccl.so.2": build_nccl("2.22.3"),
    }
    facts = collect(tmp_path, files, CONDA_PREFIX="/conda", NCCL_VERSION="2.15.5-1")
    by_version = {each.version: each for each in facts.libraries}
    assert set(by_version) == {"2.27.5", "2.15.5", "2.21.5", "2.20.3", "2.19.3", "2.22.3"}
    assert len(facts.libraries) == len(by_version)
    assert (by_version["2.15.5"].owner, by_version["2.15.5"].found_by) == ("libnccl2 (dpkg)", "ldconfig")
    assert by_version["2.21.5"].owner == "conda nccl 2.21.5.1"
    assert by_version["2.20.3"].owner == "HPC-X"
    assert facts.image_version == "2.15.5"


def test_a_symbolic_link_is_not_another_copy(tmp_path: Path) -> None:
    link = tmp_path / "opt/link/libnccl.so.2"
    link.parent.mkdir(parents=True)
    link.symlink_to(WHEEL)
    facts = collect(tmp_path, base(), LD_LIBRARY_PATH="/opt/link")
    assert [each.path for each in facts.libraries] == [WHEEL]


def test_torch_with_nccl_inside_is_its_own_library(tmp_path: Path) -> None:
    files = {TORCH_CUDA: build_elf(constants=b"NCCL version 2.21.5+cuda12.4\0")}
    facts = collect(tmp_path, files)
    assert facts.predicted_path == TORCH_CUDA
    assert facts.predicted_version == "2.21.5"
    assert facts.predicted_why == "NCCL is linked into libtorch_cuda.so"


def test_torch_that_preloads_its_wheels_beats_ld_library_path(tmp_path: Path) -> None:
    files = {
        **base(),
        "/opt/old/libnccl.so.2": build_nccl("2.18.5"),
        f"{SITE}/torch/__init__.py": b"def _load_global_deps():\n    try:\n        _preload_cuda_deps()\n",
    }
    assert collect(tmp_path, files, LD_LIBRARY_PATH="/opt/old").predicted_version == "2.18.5"
    for folder, name in (
        ("cublas", "libcublasLt.so.12"), ("cublas", "libcublas.so.12"), ("cudnn", "libcudnn.so.9"),
        ("cuda_nvrtc", "libnvrtc.so.12"), ("cuda_runtime", "libcudart.so.12"), ("cuda_cupti", "libcupti.so.12"),
        ("cufft", "libcufft.so.11"), ("curand", "libcurand.so.10"), ("nvjitlink", "libnvJitLink.so.12"),
        ("cusparse", "libcusparse.so.12"), ("cusparselt", "libcusparseLt.so.0"), ("cusolver", "libcusolver.so.11"),
        ("cuda_nvrtc", "libnvrtc-builtins.so.12.8"),
    ):  # fmt: skip
        files[f"{SITE}/nvidia/{folder}/lib/{name}"] = b""
    facts = collect(tmp_path, files, LD_LIBRARY_PATH="/opt/old")
    assert facts.predicted_path == WHEEL
    assert "_preload_cuda_deps" in (facts.predicted_why or "")


def test_what_the_import_mapped_is_loaded_and_its_version_comes_from_the_file(tmp_path: Path) -> None:
    files = {**base(), SYSTEM: build_nccl("2.15.5")}
    probe = TorchProbe(nccl_version="2.27.5", mapped_libraries=(SYSTEM, TORCH_CUDA))
    facts = collect(tmp_path, files, probe)
    assert (facts.loaded_path, facts.loaded_version, facts.loaded_deleted) == (SYSTEM, "2.15.5", False)


def test_a_mapped_file_that_was_replaced_has_no_version(tmp_path: Path) -> None:
    probe = TorchProbe(mapped_libraries=(f"{WHEEL} (deleted)",))
    facts = collect(tmp_path, base(), probe)
    assert (facts.loaded_path, facts.loaded_deleted, facts.loaded_version) == (WHEEL, True, None)
    assert "replaced" in facts.unread["loaded_version"].reason


def test_a_cpu_build_needs_no_nccl(tmp_path: Path) -> None:
    facts = collect(
        tmp_path, {f"{SITE}/torch/lib/libtorch_python.so": build_elf(needed=("libtorch_cpu.so",))}
    )
    assert facts.predicted_path is None
    assert "needs NCCL" in facts.unread["predicted_path"].reason
    assert facts.libraries == ()


def test_nothing_at_all_is_no_error(tmp_path: Path) -> None:
    facts = collect_nccl(World(root=tmp_path, environ={}), None, None, None)
    assert facts.version is None
    assert {"predicted_path", "loaded_path", "expected_version"} <= set(facts.unread)


@pytest.mark.parametrize(
    ("environ", "files", "found"),
    [
        ({}, {}, None),
        ({"LD_LIBRARY_PATH": "/ofi"}, {"/ofi/libnccl-net.so": b"x"}, "/ofi/libnccl-net.so"),
        ({"LD_LIBRARY_PATH": "/ofi", "NCCL_NET_PLUGIN": "ofi"}, {"/ofi/libnccl-net-ofi.so": b"x"}, "/ofi/libnccl-net-ofi.so"),
        ({"NCCL_NET_PLUGIN": "/p/x.so"}, {"/p/x.so": b"x"}, "/p/x.so"),
        ({"NCCL_NET_PLUGIN": "absent"}, {}, None),
    ],
)  # fmt: skip
def test_plugins_are_looked_for_as_nccl_does(
    tmp_path: Path, environ: dict[str, str], files: dict[str, bytes], found: str | None
) -> None:
    libraries = {path: build_elf(soname=path.rpartition("/")[2]) for path in files}
    facts = collect(tmp_path, {**base(), **libraries}, **environ)
    network = facts.plugins[0]
    assert network.path == found
    assert network.wanted_by == ("NCCL_NET_PLUGIN" if "NCCL_NET_PLUGIN" in environ else "default name")


def test_a_plugin_that_is_switched_off_is_not_looked_for(tmp_path: Path) -> None:
    facts = collect(tmp_path, base(), NCCL_NET_PLUGIN="none")
    assert not [each for each in facts.plugins if each.name.startswith("libnccl-net")]


@pytest.mark.parametrize(
    "data", [b"", b"no banner", b"NCCL version", b"NCCL version %d.%d.%d", b"\x7fELF" + b"NCCL version x"]
)
def test_a_file_without_banner_has_none(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "lib"
    path.write_bytes(data)
    assert read_nccl_banner(path) is None


def test_a_file_without_sections_is_searched_from_its_head(tmp_path: Path) -> None:
    path = tmp_path / "lib"
    path.write_bytes(b"x" * 1000 + b"NCCL version 2.28.9+cuda13.0\0")
    banner = read_nccl_banner(path)
    assert banner is not None
    assert (banner.version, banner.cuda) == ("2.28.9", "13.0")
