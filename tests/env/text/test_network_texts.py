"""RDMA ports and interfaces from the words of seven tools."""

from __future__ import annotations

import pytest

from distdoctor.env.facts.network import RdmaPort
from distdoctor.env.readers import interfaces, rdma

IBSTAT = """\
CA 'mlx5_4'
	CA type: MT4129
	Number of ports: 1
	Firmware version: 28.41.1000
	Port 1:
		State: {state}
		Physical state: {phys}
		Rate: {rate}
		Base lid: 77
		SM lid: 2
		Link layer: InfiniBand
"""


def ports(text: str) -> tuple[RdmaPort, ...]:
    found = rdma.read(text, "x").rdma_ports
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("state", "phys", "rate", "expected"),
    [
        ("Active", "LinkUp", "400", ("ACTIVE", "LinkUp", 400.0)),
        ("Initializing", "LinkUp", "200", ("INIT", "LinkUp", 200.0)),
        ("Down", "Polling", "10", ("DOWN", "Polling", 10.0)),
        ("Down", "Disabled", "40 (FDR10)", ("DOWN", "Disabled", 40.0)),
    ],
)
def test_ibstat(state: str, phys: str, rate: str, expected: tuple[str, str, float]) -> None:
    assert rdma.sniff(IBSTAT.format(state=state, phys=phys, rate=rate))
    (port,) = ports(IBSTAT.format(state=state, phys=phys, rate=rate))
    assert (port.state, port.phys_state, port.rate_gbit) == expected
    assert (port.device, port.port, port.board, port.firmware) == ("mlx5_4", 1, "MT4129", "28.41.1000")
    assert (port.lid, port.sm_lid, port.link_layer) == (77, 2, "InfiniBand")


def test_ibstatus() -> None:
    text = (
        "Infiniband device 'mlx5_0' port 1 status:\n\tdefault gid:\t fe80:0000\n\tbase lid:\t 0x1c\n"
        "\tsm lid:\t\t 0x1\n\tstate:\t\t 4: ACTIVE\n\tphys state:\t 5: LinkUp\n"
        "\trate:\t\t 400 Gb/sec (4X NDR)\n\tlink_layer:\t InfiniBand\n"
    )
    (port,) = ports(text)
    assert (port.state, port.phys_state, port.rate_gbit, port.lid) == ("ACTIVE", "LinkUp", 400.0, 28)


def test_ibv_devinfo_multiplies_width_and_speed() -> None:
    text = (
        "hca_id:\tmlx5_bond_0\n\tfw_ver:\t\t22.36.1010\n\tboard_id:\tMT_0000000359\n\t\tport:\t1\n"
        "\t\t\tstate:\t\tPORT_DOWN (1)\n\t\t\tlink_layer:\tEthernet\n\t\t\tactive_width:\t4X (2)\n"
        "\t\t\tactive_speed:\t25.0 Gbps (32)\n\t\t\tphys_state:\tDISABLED (3)\n"
    )
    (port,) = ports(text)
    assert (port.device, port.state, port.phys_state) == ("mlx5_bond_0", "DOWN", "Disabled")
    assert (port.rate_gbit, port.board, port.link_layer) == (100.0, "MT_0000000359", "Ethernet")


def test_ibdev2netdev_says_nothing_about_the_port_itself() -> None:
    first, second = ports("mlx5_0 port 1 ==> ibs1 (Up)\nmlx5_9 port 2 ==> ens9f1np1 (Down)\n")
    assert (first.netdev, second.netdev, second.port) == ("ibs1", "ens9f1np1", 2)
    assert first.state is None and second.state is None


def test_rdma_link() -> None:
    (port,) = ports(
        "link mlx5_3/1 subnet_prefix fe80:: lid 9 sm_lid 1 lmc 0 state ACTIVE physical_state LINK_UP\n"
    )
    assert (port.state, port.phys_state, port.lid) == ("ACTIVE", "LinkUp", 9)
    (port,) = ports("link rocep1s0/1 state DOWN physical_state DISABLED netdev eth5\n")
    assert (port.device, port.state, port.phys_state, port.netdev) == ("rocep1s0", "DOWN", "Disabled", "eth5")


def test_the_words_of_two_tools_about_one_port_are_joined() -> None:
    text = IBSTAT.format(state="Active", phys="LinkUp", rate="400") + "\nmlx5_4 port 1 ==> ib4 (Up)\n"
    (port,) = ports(text)
    assert (port.state, port.netdev) == ("ACTIVE", "ib4")


def test_a_port_cut_before_its_state_has_none() -> None:
    (port,) = ports(IBSTAT.split("\t\tState", maxsplit=1)[0])
    assert port.state is None and port.rate_gbit is None


def test_ip_addr() -> None:
    text = (
        "2: ibs1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 4092 qdisc mq state UP group default qlen 256\n"
        "    link/infiniband 00:00:10:49:fe:80:00:00:00:00:00:00:94:6d:ae:03:00:00:00:01 brd 00:ff\n"
        "    inet 10.1.0.7/16 brd 10.1.255.255 scope global ibs1\n"
        "3: eth1: <NO-CARRIER,BROADCAST,MULTICAST,UP> mtu 1500 qdisc mq state DOWN group default\n"
        "4: veth9@if3: <BROADCAST,UP,LOWER_UP> mtu 1500 qdisc noqueue state UP\n    inet6 fe80::1/64 scope link\n"
    )
    first, second, third = interfaces.read(text, "x").interfaces or ()
    assert (first.name, first.is_up, first.mtu) == ("ibs1", True, 4092)
    assert [(each.address, each.prefix_length) for each in first.addresses] == [("10.1.0.7", 16)]
    assert (second.is_up, second.state) == (False, "down")
    assert (third.name, third.is_virtual) == ("veth9", True)


def test_ip_brief_and_ifconfig() -> None:
    brief = (
        "lo               UNKNOWN        127.0.0.1/8 ::1/128\nbond0            UP             10.0.0.3/24 fe80::3/64\n"
        "ens1f1           DOWN           \n"
    )
    loopback, bond, down = interfaces.read(brief, "x").interfaces or ()
    assert (loopback.is_up, bond.is_up, down.is_up) == (None, True, False)
    assert len(bond.addresses) == 2
    old = (
        "eth0: flags=4163<UP,BROADCAST,RUNNING,MULTICAST>  mtu 9000\n"
        "        inet 192.168.1.5  netmask 255.255.255.0  broadcast 192.168.1.255\n"
        "        ether 00:11:22:33:44:55  txqueuelen 1000  (Ethernet)\n"
        "        RX packets 5  bytes 6 (6.0 B)\n        RX errors 3  dropped 4  overruns 0  frame 0\n"
        "        TX errors 0  dropped 0 overruns 0  carrier 0  collisions 0\n"
    )
    (eth0,) = interfaces.read(old, "x").interfaces or ()
    assert (eth0.is_up, eth0.mtu, eth0.mac) == (True, 9000, "00:11:22:33:44:55")
    assert (eth0.rx_errors, eth0.rx_dropped, eth0.tx_errors) == (3, 4, 0)
