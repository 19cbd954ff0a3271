"""What kind of network an interface's name tells: a card, a container bridge, a VPN, loopback."""

from __future__ import annotations

import re
from enum import Enum

from distdoctor.env.facts.network import Interface


class InterfaceKind(str, Enum):
    """`ordinary` is everything that may carry a job: cards, bonds, VLANs, a container's own eth0."""

    ORDINARY = "ordinary"
    LOOPBACK = "loopback"
    CONTAINER = "container or virtual-machine bridge"
    VPN = "VPN or tunnel"
    DUMMY = "dummy"


# Names that Docker, Podman, LXD, libvirt, VirtualBox, VMware and the Kubernetes network plugins give to the
# host's side of their networks. OpenShift's br-ex holds the node's own address and is an ordinary bridge.
_CONTAINER = re.compile(
    r"^(docker|veth|virbr|vnet\d|cni|flannel|cali|cilium|lxc|lxdbr|podman|br-(?!ex$)|weave|kube-|nodelocaldns"
    r"|antrea|ovn-k8s|ovs-system|genev_sys|vxlan|vmnet|vboxnet|nerdctl|incusbr)"
)
_VPN = re.compile(
    r"^(tailscale|zt[a-z0-9]{6,}$|wg|tun|tap\d|ppp|utun|nordlynx|proton|ipsec|gpd\d|cscotun|sit|ip6tnl|gre)"
)
_DUMMY = re.compile(r"^(dummy|ifb)")


def interface_kind(interface: Interface) -> InterfaceKind:
    """The kind by name; a name with a PCI device behind it is always ordinary."""
    name = interface.name
    if name == "lo":
        return InterfaceKind.LOOPBACK
    if interface.pci is not None:
        return InterfaceKind.ORDINARY
    for kind, pattern in (
        (InterfaceKind.CONTAINER, _CONTAINER),
        (InterfaceKind.VPN, _VPN),
        (InterfaceKind.DUMMY, _DUMMY),
    ):
        if pattern.match(name):
            return kind
    return InterfaceKind.ORDINARY
