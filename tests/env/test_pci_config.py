"""Access Control Services and port types in configuration space, and bytes that make no sense."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distdoctor.env.pci_config import PortType, acs_control, acs_names, extended_capability, port_type
from pci_bytes import config_space


def test_the_control_register_is_found_behind_another_capability() -> None:
    assert acs_control(config_space(acs=0x1D)) == 0x1D
    assert acs_names(0x1D) == "SrcValid+ ReqRedir+ CmpltRedir+ UpstreamFwd+"


def test_a_bridge_without_the_capability_has_no_register() -> None:
    assert acs_control(config_space(acs=None)) is None


@pytest.mark.parametrize("size", [64, 256])
def test_a_short_configuration_space_is_not_taken_for_off(size: int) -> None:
    with pytest.raises(ValueError, match=f"{size} bytes"):
        acs_control(config_space(acs=None, size=size))


def test_a_device_that_does_not_answer_is_not_taken_for_on() -> None:
    with pytest.raises(ValueError, match="does not answer"):
        acs_control(b"\xff" * 4096)


def test_a_list_that_loops_ends() -> None:
    data = bytearray(config_space(acs=None))
    data[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert extended_capability(bytes(data), 0x000D) is None


@pytest.mark.parametrize(
    ("number", "kind"), [(4, PortType.ROOT_PORT), (6, PortType.SWITCH_DOWNSTREAM), (15, None)]
)
def test_the_port_type_is_read_from_the_pci_express_capability(number: int, kind: PortType | None) -> None:
    assert port_type(config_space(acs=0, port_type=number)) is kind


@given(st.binary(max_size=600))
def test_any_bytes_end_in_an_answer_or_a_value_error(data: bytes) -> None:
    port_type(data)
    try:
        control = acs_control(data)
    except ValueError:
        return
    assert control is None or 0 <= control < 0x80
