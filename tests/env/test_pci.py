"""One PCI address in many spellings."""

from __future__ import annotations

import pytest

from distdoctor.env.pci import nvml_address, same_device, sysfs_address


@pytest.mark.parametrize(
    ("text", "sysfs", "nvml"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0", "00000000:3B:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0", "00000000:3B:00.0"),
        ("PCI:0000:3b:00", "0000:3b:00.0", "00000000:3B:00.0"),
        ("3b:00.0", "0000:3b:00.0", "00000000:3B:00.0"),
        ("0000000A:00:00.0", "000a:00:00.0", "0000000A:00:00.0"),
        ("10000:e1:00.0", "10000:e1:00.0", "00010000:E1:00.0"),
        ("000:BA:80.0", "0000:ba:80.0", "00000000:BA:80.0"),
        (" 0000:3b:00.1\n", "0000:3b:00.1", "00000000:3B:00.1"),
    ],
)
def test_every_spelling_gives_the_same_two(text: str, sysfs: str, nvml: str) -> None:
    assert sysfs_address(text) == sysfs
    assert nvml_address(text) == nvml
    assert sysfs_address(nvml) == sysfs
    assert same_device(text, sysfs)


@pytest.mark.parametrize(
    "text", ["", "GPU-1234", "N/A", "zz:00.0", "0000:3b", "0000:3b:00.0 (rev a1)", "0:0:0:0:0"]
)
def test_other_text_is_no_address(text: str) -> None:
    assert sysfs_address(text) is None
    assert nvml_address(text) is None
    assert not same_device(text, text)
