"""NCCL: the copies on disk, the one that torch would load, the one that is loaded, and its plugins."""

from __future__ import annotations

import re
from pathlib import Path

from distdoctor.env.collect.live_process import DELETED, read_mapped_libraries
from distdoctor.env.collect.loader import LoaderConfig, Resolved, read_loader_config
from distdoctor.env.collect.nccl_banner import read_nccl_banner
from distdoctor.env.collect.nccl_files import find_nccl_libraries, site_folders, wheel_folders
from distdoctor.env.collect.nccl_plugins import find_plugins
from distdoctor.env.collect.nccl_predict import predict_nccl
from distdoctor.env.collect.world import World
from distdoctor.env.facts.base import Reading, UnreadError
from distdoctor.env.facts.nccl import NcclFacts
from distdoctor.env.facts.torch import PythonFacts, TorchFacts, TorchProbe
from distdoctor.env.versions import parse_version
from distdoctor.report.model import SkipCause

_NCCL_FILE = re.compile(r"/lib(?:nccl|rccl)\.so[^/]*\Z")
_TORCH_WITH_NCCL = re.compile(r"/libtorch_(?:cuda|hip)\.so[^/]*\Z")
_NCCL_DISTRIBUTION = re.compile(r"nvidia-nccl-cu\d+\Z")


def collect_nccl(
    world: World, python: PythonFacts | None, torch: TorchFacts | None, probe: TorchProbe | None
) -> NcclFacts:
    """NCCL as installed, predicted and loaded. Runs nothing and loads nothing; never raises."""
    reading = Reading()
    config = read_loader_config(world)
    reading.put("libraries", "files on disk", find_nccl_libraries(world, python, torch, config))
    predicted = reading.take(
        "predicted_path", "emulation of ld.so", lambda: predict_nccl(world, python, torch, config)
    )
    if predicted is not None:
        _put_predicted(world, reading, predicted)
    _take_loaded(world, reading, probe)
    _take_expected(reading, python, torch, probe)
    image = parse_version(world.environ.get("NCCL_VERSION"))
    if image is not None:
        reading.put("image_version", "NCCL_VERSION", ".".join(map(str, image)))
    reading.put("plugins", "emulation of ld.so", _plugins(world, reading, config))
    return NcclFacts(**reading.fields())


def _put_predicted(world: World, reading: Reading, predicted: Resolved) -> None:
    reading.put("predicted_path", predicted.why, predicted.path)
    reading.put("predicted_why", predicted.why, predicted.why)
    reading.take("predicted_version", predicted.path, lambda: _version_in(world, predicted.path))


def _version_in(world: World, path: str) -> str:
    banner = read_nccl_banner(Path(world.path(path)))
    if banner is None:
        raise UnreadError(SkipCause.FAILED, f"{path} holds no NCCL version banner")
    return banner.version


def _take_loaded(world: World, reading: Reading, probe: TorchProbe | None) -> None:
    """What the live process has mapped; else what the child that imported torch had mapped."""
    source = world.proc("maps") if world.pid != "self" else "memory map of the child that imported torch"
    path = reading.take("loaded_path", source, lambda: _mapped_nccl(world, probe, source))
    if path is None:
        return
    clean = path.removesuffix(DELETED)
    reading.put("loaded_path", source, clean)
    reading.put("loaded_deleted", source, path != clean)
    if path != clean:
        reading.miss("loaded_version", SkipCause.ABSENT, f"{clean} was replaced on disk since it was loaded")
        return
    reading.take("loaded_version", clean, lambda: _version_in(world, clean))


def _mapped_nccl(world: World, probe: TorchProbe | None, source: str) -> str:
    """The mapped libnccl, or a mapped libtorch_cuda.so that holds NCCL itself; raises UnreadError if neither."""
    if world.pid != "self":
        mapped = read_mapped_libraries(world)
    elif probe is not None:
        mapped = probe.mapped_libraries
    else:
        raise UnreadError(SkipCause.NOT_ASKED, "torch was not imported, so nothing has loaded NCCL")
    for path in mapped:
        if _NCCL_FILE.search(path.removesuffix(DELETED)):
            return path
    for path in mapped:
        if _TORCH_WITH_NCCL.search(path) and read_nccl_banner(Path(world.path(path))) is not None:
            return path
    raise UnreadError(SkipCause.ABSENT, f"no libnccl in the {source}")


def _take_expected(
    reading: Reading, python: PythonFacts | None, torch: TorchFacts | None, probe: TorchProbe | None
) -> None:
    """The version that torch's metadata pins; else the one it was compiled with.

    torch.cuda.nccl.version() gives the latter: NCCL_MAJOR and so on at compile time (csrc/cuda/nccl.cpp),
    whatever library is loaded.
    """
    pins = {} if torch is None else dict(torch.required_nvidia)
    pinned = next((each for name, each in pins.items() if _NCCL_DISTRIBUTION.match(name)), None)
    if pinned is not None:
        reading.put("expected_version", "torch's metadata", pinned)
    elif probe is not None and probe.nccl_version:
        reading.put("expected_version", "torch.cuda.nccl.version()", probe.nccl_version)
    else:
        reading.miss("expected_version", SkipCause.ABSENT, "torch's metadata pins no nvidia-nccl wheel")
    libraries = reading.get("libraries") or ()
    for site in site_folders(python, torch)[:1]:
        for folder in wheel_folders(site):
            for library in libraries:
                if library.path.startswith(f"{folder}/"):
                    reading.put("expected_path", "site-packages", library.path)
                    return


def _plugins(world: World, reading: Reading, config: LoaderConfig) -> tuple[object, ...]:
    path = reading.get("loaded_path") or reading.get("predicted_path")
    return find_plugins(world, path if isinstance(path, str) else "", config)
