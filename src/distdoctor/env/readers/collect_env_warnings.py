"""What PyTorch's warnings, printed before or inside a collect_env dump, tell: initialisation errors, missing archs."""

from __future__ import annotations

import re

# CUDA's own error codes and words, as in "Error 802: system not yet initialized" (driver_types.h).
_ERROR = re.compile(r"Error (?P<code>\d{1,4}): (?P<text>[A-Za-z][^\n(]{3,200})")
_NAMED_ERROR = re.compile(
    r"(?P<text>The NVIDIA driver on your system is too old \(found version \d+\)|"
    r"Found no NVIDIA driver on your system|"
    r"CUDA driver initialization failed, you might not have a CUDA gpu|"
    r"CUDA unknown error - this may be due to an incorrectly set up environment|"
    r"Can't initialize NVML|"
    r"HIP initialization: Unexpected error from hipGetDeviceCount\(\)[^\n]{0,200})"
)
_TOO_OLD = re.compile(r"driver on your system is too old \(found version (\d{4,6})\)")
# Wording since 1.8 ("supports CUDA capabilities sm_50 sm_60"), and since 2.7 ("(9.0) - (12.0)" ranges beside the list).
_SUPPORTS = re.compile(
    r"PyTorch install(?:ation)? (?:supports CUDA capabilit(?:y|ies)|supports)\s+(?P<archs>(?:(?:sm|compute)_\w+[\s,]*)+)"
)
_ARCH_LIST = re.compile(r"get_arch_list\(\)[^\[\n]{0,10}\[(?P<archs>[^\]\n]{0,400})\]")
_ARCH = re.compile(r"(?:sm|compute)_\d+[af]?")
_OLDEST = re.compile(
    r"no longer supports this GPU because it is too old\.\s+The minimum cuda capability\s+supported by this library"
    r" is (\d)\.(\d)"
)
_FOUND_GPU = re.compile(
    r"Found GPU(?P<index>\d{1,3}) (?P<name>[^\n]{3,80}?) which is of (?:cuda )?(?:compute )?capability "
    r"(?:\()?(?P<major>\d{1,2})[., ]+(?P<minor>\d)"
)
_INCOMPATIBLE = re.compile(
    r"(?P<name>[^\n:]{3,80}?) with CUDA capability sm_(?P<sm>\d{2,3})\w? is not compatible with the current PyTorch"
)


def cuda_init_error(text: str) -> str | None:
    """The error of CUDA's (or HIP's) initialisation in PyTorch's own words, or None when none was printed."""
    start = text.find("CUDA initialization")
    near = text[start : start + 1200] if start >= 0 else ""
    numbered = _ERROR.search(near) or _ERROR.search(_with_count_error(text))
    if numbered:
        return f"Error {numbered['code']}: {numbered['text'].strip()}"
    named = _NAMED_ERROR.search(text)
    return named["text"].strip() if named else None


def _with_count_error(text: str) -> str:
    start = text.find("cudaGetDeviceCount")
    return text[start : start + 800] if start >= 0 else ""


def driver_cuda_version(text: str) -> str | None:
    """The CUDA version of the driver in "too old (found version 12040)": 1000 x major + 10 x minor, so "12.4"."""
    match = _TOO_OLD.search(text)
    if match is None:
        return None
    number = int(match[1])
    return f"{number // 1000}.{number % 1000 // 10}"


def supported_archs(text: str) -> tuple[str, ...]:
    """What this torch was compiled for, as a warning or a printed get_arch_list() says; empty when it is not said.

    "no longer supports this GPU because it is too old" names only the oldest one: that is then the whole list.
    """
    match = _SUPPORTS.search(text) or _ARCH_LIST.search(text)
    if match:
        return tuple(dict.fromkeys(_ARCH.findall(match["archs"])))
    oldest = _OLDEST.search(text)
    return (f"sm_{oldest[1]}{oldest[2]}",) if oldest else ()


def capabilities(text: str) -> tuple[dict[str, tuple[int, int]], dict[int, tuple[int, int]]]:
    """Compute capabilities that warnings name: by GPU name ("… sm_120 is not compatible"), and by index."""
    by_name: dict[str, tuple[int, int]] = {}
    by_index: dict[int, tuple[int, int]] = {}
    for match in _INCOMPATIBLE.finditer(text):
        by_name[match["name"].strip()] = (int(match["sm"][:-1]), int(match["sm"][-1]))
    for match in _FOUND_GPU.finditer(text):
        capability = (int(match["major"]), int(match["minor"]))
        by_index[int(match["index"])] = by_name[match["name"].strip()] = capability
    return by_name, by_index


def is_pynvml_shadowing(text: str) -> bool:
    """True when the text warns that the package `pynvml` takes precedence over nvidia-ml-py.

    torch's own "The pynvml package is deprecated" is no such warning: newer pynvml only forwards to nvidia-ml-py.
    """
    return bool(re.search(r"deprecated `?pynvml`? package", text))
