"""What NCCL and Gloo would choose, by tables whose answers follow from their sources."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from distdoctor.env.facts.network import Address, GidEntry, Interface, RdmaPort
from distdoctor.env.facts.variables import Setting, VariableFacts
from distdoctor.env.predict.gid import predict_gid
from distdoctor.env.predict.gloo import predict_gloo
from distdoctor.env.predict.nccl import port_name, predict_hcas, predict_interfaces, values_in_force
from distdoctor.env.predict.subnets import common_subnets


def net(name: str, index: int, *addresses: str, up: bool = True) -> Interface:
    split = [text.partition("/") for text in addresses]
    return Interface(
        name=name,
        index=index,
        is_up=up,
        state="up" if up else "down",
        addresses=tuple(Address(address=one, prefix_length=int(length or 24)) for one, _, length in split),
    )


LO = net("lo", 1, "127.0.0.1/8", "::1/128")
ETH0 = net("eth0", 2, "10.0.0.5", "fe80::5/64")
ETH1 = net("eth1", 3, "10.0.1.5")
ETH10 = net("eth10", 4, "10.0.2.5")
IB0 = net("ib0", 5, "192.168.0.5")
DOCKER = net("docker0", 6, "172.17.0.1/16")
VETH = net("veth12ab", 7, "fe80::7/64")
VIRBR = net("virbr0", 8, "192.168.122.1")
DOWN = net("eth3", 9, "10.9.9.9", up=False)
BARE = net("eth4", 10)
V6 = net("eth6", 11, "fd00::6/64")


@pytest.mark.parametrize(
    ("interfaces", "variables", "expected"),
    [
        # Defaults, in NCCL's order of rules.
        ([LO, ETH0, DOCKER], {}, ["eth0"]),
        ([LO, ETH0, IB0], {}, ["ib0"]),
        ([LO, ETH0, ETH1], {}, ["eth0", "eth1"]),
        ([LO, DOCKER], {}, ["docker0"]),
        ([LO], {}, ["lo"]),
        ([LO, VIRBR], {}, ["lo"]),
        ([VIRBR], {}, ["virbr0"]),
        ([LO, DOWN, BARE], {}, ["lo"]),
        ([], {}, []),
        # IPv4 of all interfaces comes before IPv6, so a veth pair with a link-local address is last.
        ([LO, VETH, ETH1], {}, ["eth1", "veth12ab"]),
        ([LO, V6, ETH0], {}, ["eth0", "eth6"]),
        # NCCL_SOCKET_IFNAME finds or fails.
        ([LO, ETH0, ETH1], {"NCCL_SOCKET_IFNAME": "eth1"}, ["eth1"]),
        ([LO, ETH0, ETH1, ETH10], {"NCCL_SOCKET_IFNAME": "eth1"}, ["eth1", "eth10"]),
        ([LO, ETH0, ETH1, ETH10], {"NCCL_SOCKET_IFNAME": "=eth1"}, ["eth1"]),
        ([LO, ETH0], {"NCCL_SOCKET_IFNAME": "enp90s0"}, []),
        ([LO, ETH0, DOWN], {"NCCL_SOCKET_IFNAME": "eth3"}, []),
        ([LO, ETH0, DOCKER], {"NCCL_SOCKET_IFNAME": "^docker0"}, ["lo", "eth0"]),
        ([LO, ETH0, DOCKER], {"NCCL_SOCKET_IFNAME": "^docker,lo"}, ["eth0"]),
        ([LO, ETH0], {"NCCL_SOCKET_IFNAME": "lo"}, ["lo"]),
        ([LO, ETH0, ETH1], {"NCCL_SOCKET_IFNAME": "eth1,eth0"}, ["eth0", "eth1"]),
        # A single character counts as unset.
        ([LO, ETH0], {"NCCL_SOCKET_IFNAME": "^"}, ["eth0"]),
        ([LO, ETH0], {"NCCL_SOCKET_IFNAME": ""}, ["eth0"]),
        # Families.
        ([LO, ETH1, V6], {"NCCL_SOCKET_FAMILY": "AF_INET6"}, ["eth6"]),
        ([LO, ETH0, V6], {"NCCL_SOCKET_FAMILY": "AF_INET"}, ["eth0"]),
        ([LO, ETH1], {"NCCL_SOCKET_FAMILY": "AF_INET6", "NCCL_SOCKET_IFNAME": "eth1"}, []),
        # NCCL_COMM_ID is a hint after ib*.
        ([LO, ETH0, ETH1], {"NCCL_COMM_ID": "10.0.1.77:23456"}, ["eth1"]),
        ([LO, ETH0, ETH1, IB0], {"NCCL_COMM_ID": "10.0.1.77:23456"}, ["ib0"]),
        ([LO, V6, ETH0], {"NCCL_COMM_ID": "[fd00::9]:23456"}, ["eth6"]),
        ([LO, ETH0], {"NCCL_COMM_ID": "host-b:23456"}, ["eth0"]),
    ],
)
def test_interfaces(interfaces: list[Interface], variables: Mapping[str, str], expected: list[str]) -> None:
    prediction = predict_interfaces(interfaces, variables)
    assert [each.name for each in prediction.chosen] == expected
    assert set(prediction.rejected) == {each.name for each in interfaces} - set(expected)


def test_old_nccl_takes_virbr_and_interfaces_without_link() -> None:
    old = predict_interfaces([LO, VIRBR, DOWN], {}, nccl_version="2.27.3")
    assert [each.name for each in old.chosen] == ["virbr0", "eth3"]
    new = predict_interfaces([LO, VIRBR, DOWN], {}, nccl_version="2.28.9")
    assert [each.name for each in new.chosen] == ["lo"]


def test_at_most_sixteen_interfaces() -> None:
    many = [net(f"eth{number}", number, f"10.0.{number}.1") for number in range(20)]
    prediction = predict_interfaces(many, {})
    assert len(prediction.chosen) == 16
    assert "limit of 16" in prediction.rejected["eth19"]


def test_the_reason_of_a_rejection_is_told() -> None:
    rejected = predict_interfaces([LO, ETH0, DOWN, BARE], {"NCCL_SOCKET_IFNAME": "eth0"}).rejected
    assert rejected["eth3"] == "no link (state down)"
    assert rejected["eth4"] == "no IP address"
    assert "NCCL_SOCKET_IFNAME=eth0" in rejected["lo"]


def hca(device: str, port: int = 1, state: str | None = "ACTIVE", **facts: object) -> RdmaPort:
    layer = facts.pop("link_layer", "InfiniBand")
    return RdmaPort(device=device, port=port, state=state, link_layer=layer, **facts)  # type: ignore[arg-type]


NODE = [hca(f"mlx5_{number}") for number in range(12)]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, [f"mlx5_{number}/1" for number in range(12)]),
        ({"NCCL_IB_HCA": "mlx5_1"}, ["mlx5_1/1", "mlx5_10/1", "mlx5_11/1"]),
        ({"NCCL_IB_HCA": "=mlx5_1"}, ["mlx5_1/1"]),
        ({"NCCL_IB_HCA": "=mlx5_0:1,mlx5_2:2"}, ["mlx5_0/1"]),
        ({"NCCL_IB_HCA": "^mlx5_1,mlx5_2"}, [f"mlx5_{number}/1" for number in (0, 3, 4, 5, 6, 7, 8, 9)]),
        ({"NCCL_IB_HCA": "ibp"}, []),
        ({"NCCL_IB_HCA": "^"}, []),
        ({"NCCL_IB_HCA": ""}, [f"mlx5_{number}/1" for number in range(12)]),
        ({"NCCL_IB_DISABLE": "1"}, []),
        ({"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "=mlx5_3"}, ["mlx5_3/1"]),
        ({"NCCL_IB_DISABLE": "true", "NCCL_IB_HCA": "=mlx5_3"}, ["mlx5_3/1"]),
        ({"NCCL_NET": "Socket"}, []),
    ],
)
def test_hcas(variables: Mapping[str, str], expected: list[str]) -> None:
    prediction = predict_hcas(NODE, variables)
    assert [port_name(port) for port in prediction.chosen] == expected
    assert len(prediction.rejected) == 12 - len(expected)


@pytest.mark.parametrize(
    ("port", "reason"),
    [
        (hca("mlx5_0", state="DOWN"), "state is DOWN"),
        (hca("mlx5_0", state="INIT"), "state is INIT"),
        (hca("mlx5_0", state=None), "not known"),
        (hca("mlx5_0", openable=False, open_error="Operation not permitted"), "Operation not permitted"),
        (hca("rdmap16s27", is_efa=True, link_layer="Unknown"), "plugin"),
        (hca("siw0", link_layer="Unknown"), "link layer is Unknown"),
    ],
)
def test_ports_that_cannot_be_used(port: RdmaPort, reason: str) -> None:
    prediction = predict_hcas([port], {})
    assert not prediction.chosen
    assert reason in prediction.rejected[port_name(port)]


def gid(index: int, text: str, kind: str | None) -> GidEntry:
    return GidEntry(index=index, gid=text, kind=kind, netdev=None)


LINK_V1 = gid(0, "fe80:0000:0000:0000:0a00:00ff:fe00:0001", "IB/RoCE v1")
LINK_V2 = gid(1, "fe80:0000:0000:0000:0a00:00ff:fe00:0001", "RoCE v2")
V4_V1 = gid(2, "0000:0000:0000:0000:0000:ffff:0a01:0005", "IB/RoCE v1")
V4_V2 = gid(3, "0000:0000:0000:0000:0000:ffff:0a01:0005", "RoCE v2")
OTHER_V2 = gid(5, "0000:0000:0000:0000:0000:ffff:c0a8:0105", "RoCE v2")
V6_V2 = gid(4, "fd00:0000:0000:0000:0000:0000:0000:0005", "RoCE v2")
FULL = (LINK_V1, LINK_V2, V4_V1, V4_V2)


# Expected by ncclIbGetGidIndex and ncclUpdateGidIndex of NVIDIA/nccl net_ib/connect.cc.
@pytest.mark.parametrize(
    ("rows", "variables", "version", "index"),
    [
        (FULL, {}, "2.27.3", 3),
        (FULL, {}, None, 3),
        (FULL, {}, "2.20.5", 0),
        (FULL, {"NCCL_IB_GID_INDEX": "3"}, "2.20.5", 3),
        (FULL, {"NCCL_IB_GID_INDEX": "7"}, "2.27.3", 7),
        (FULL, {"NCCL_IB_GID_INDEX": "-1"}, "2.27.3", 3),
        (FULL, {"NCCL_IB_ROCE_VERSION_NUM": "1"}, "2.27.3", 2),
        ((LINK_V1, LINK_V2), {}, "2.27.3", 0),
        ((LINK_V1, LINK_V2, V6_V2), {}, "2.27.3", 0),
        ((LINK_V1, LINK_V2, V6_V2), {"NCCL_IB_ADDR_FAMILY": "AF_INET6"}, "2.27.3", 4),
        ((*FULL, OTHER_V2), {}, "2.27.3", 3),
        ((LINK_V1, LINK_V2, V4_V2, OTHER_V2), {"NCCL_IB_ADDR_RANGE": "192.168.0.0/16"}, "2.27.3", 5),
    ],
)
def test_gid_rows(
    rows: tuple[GidEntry, ...], variables: Mapping[str, str], version: str | None, index: int
) -> None:
    choice = predict_gid(hca("mlx5_0", gids=rows, link_layer="Ethernet"), variables, nccl_version=version)
    assert choice is not None
    assert choice.index == index
    assert choice.entry == next((row for row in rows if row.index == index), None)


def test_a_gid_table_that_was_not_read_gives_no_choice() -> None:
    assert predict_gid(hca("mlx5_0", link_layer="Ethernet"), {}) is None


@pytest.mark.parametrize(
    ("variables", "resolved", "addresses", "missing", "fallback"),
    [
        ({}, ("10.0.0.5",), ("10.0.0.5",), (), False),
        ({}, ("127.0.1.1",), ("127.0.1.1",), (), False),
        ({}, ("203.0.113.9", "10.0.1.5"), ("10.0.1.5",), (), False),
        ({}, ("203.0.113.9",), ("127.0.0.1",), (), True),
        ({}, (), ("127.0.0.1",), (), True),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, None, ("10.0.1.5",), (), False),
        ({"GLOO_SOCKET_IFNAME": "eth"}, None, (), ("eth",), False),
        ({"GLOO_SOCKET_IFNAME": "=eth1"}, None, (), ("=eth1",), False),
        ({"GLOO_SOCKET_IFNAME": "eth1,eth4"}, None, ("10.0.1.5",), ("eth4",), False),
    ],
)
def test_gloo(
    variables: Mapping[str, str],
    resolved: tuple[str, ...] | None,
    addresses: tuple[str, ...],
    missing: tuple[str, ...],
    fallback: bool,
) -> None:
    choice = predict_gloo([LO, ETH0, ETH1, BARE], variables, resolved)
    assert choice is not None
    assert (choice.addresses, choice.missing, choice.is_fallback) == (addresses, missing, fallback)


def test_gloo_without_a_resolved_name_is_not_guessed() -> None:
    assert predict_gloo([LO, ETH0], {}, None) is None


def ip(text: str) -> Address:
    address, _, length = text.partition("/")
    return Address(address=address, prefix_length=int(length))


def test_hosts_in_one_subnet_have_it_in_common() -> None:
    found = common_subnets({"a": [ip("10.0.0.1/24"), ip("192.168.1.1/24")], "b": [ip("10.0.0.2/24")]})
    assert found.common == ("10.0.0.0/24",)


def test_docker_bridges_with_the_same_address_join_nobody() -> None:
    found = common_subnets({"a": [ip("172.17.0.1/16")], "b": [ip("172.17.0.1/16")]})
    assert found.common == ()
    assert found.duplicates == {"172.17.0.1": ("a", "b")}


def test_loopback_and_link_local_networks_join_nobody() -> None:
    found = common_subnets(
        {"a": [ip("127.0.0.1/8"), ip("fe80::1/64")], "b": [ip("127.0.0.1/8"), ip("fe80::2/64")]}
    )
    assert found.common == ()
    assert found.duplicates == {}


def test_configuration_files_are_in_force_beside_the_environment() -> None:
    setting = Setting(name="NCCL_IB_HCA", value="mlx5_0", origin="/etc/nccl.conf")
    values = values_in_force(VariableFacts(environment={"NCCL_DEBUG": "INFO"}, settings=(setting,)))
    assert values == {"NCCL_DEBUG": "INFO", "NCCL_IB_HCA": "mlx5_0"}
