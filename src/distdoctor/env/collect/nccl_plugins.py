"""Which NCCL plugins would be found: network, tuner, profiler, environment."""

from __future__ import annotations

from collections.abc import Iterator

from distdoctor.env.collect.loader import LoaderConfig, resolve_library
from distdoctor.env.collect.world import World
from distdoctor.env.facts.nccl import NcclPlugin

# Kind of plugin → variable, prefix of its file. NCCL 2.30.7, src/plugin/plugin_open.cc.
_KINDS = (
    ("NCCL_NET_PLUGIN", "libnccl-net"),
    ("NCCL_TUNER_PLUGIN", "libnccl-tuner"),
    ("NCCL_PROFILER_PLUGIN", "libnccl-profiler"),
    ("NCCL_ENV_PLUGIN", "libnccl-env"),
)
# Words that are no file: `none` switches plugins off, STATIC_PLUGIN means one that is linked in.
_NO_FILE = ("none", "static_plugin")
_MAX_NAMES = 16


def find_plugins(world: World, nccl_path: str, config: LoaderConfig) -> tuple[NcclPlugin, ...]:
    """Plugins that NCCL would try, in its order, and where the loader would find them.

    NCCL opens them itself, so its own RUNPATH counts, then LD_LIBRARY_PATH and the rest.
    """
    plugins = []
    for variable, prefix in _KINDS:
        value = world.environ.get(variable, "")
        names = [each.strip() for each in value.split(",") if each.strip()][:_MAX_NAMES]
        if not names:
            path = _open(world, f"{prefix}.so", nccl_path, config)
            plugins.append(NcclPlugin(name=f"{prefix}.so", path=path, wanted_by="default name"))
            continue
        for name in names:
            if name.lower() in _NO_FILE:
                continue
            path = next(
                filter(None, (_open(world, each, nccl_path, config) for each in _spellings(name, prefix))),
                None,
            )
            plugins.append(NcclPlugin(name=name, path=path, wanted_by=variable))
    return tuple(plugins)


def _spellings(name: str, prefix: str) -> Iterator[str]:
    """The name as it stands, then as a suffix: `ofi` → libnccl-net-ofi.so."""
    yield name
    if "/" not in name and not (name.startswith("lib") and name.endswith(".so")):
        yield f"{prefix}-{name}.so"


def _open(world: World, name: str, nccl_path: str, config: LoaderConfig) -> str | None:
    if "/" in name:
        return name if world.exists(name) else None
    found = resolve_library(world, name, wanted_by=nccl_path, loaded_by=(), config=config)
    return found.path if found is not None else None
