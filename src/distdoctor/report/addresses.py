"""Addresses and serial-like identities in a text, told apart from versions, times, PCI addresses and pointers."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable

Give = Callable[[str, str, str], str]
"""(kind, identity, spelling) to pseudonym."""

_HEX2 = r"[0-9A-Fa-f]{2}"
_HEX4 = r"[0-9A-Fa-f]{4}"

_GPU_UUID = re.compile(
    r"(?<![\w])(?P<kind>GPU|MIG)-(?:GPU-)?[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?:/\d+/\d+)?"
)
_UUID = re.compile(r"(?<![\w-])[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}(?![\w-])")
_MAC = re.compile(rf"(?<![\w:\-]){_HEX2}(?P<sep>[:\-])(?:{_HEX2}(?P=sep)){{4,18}}{_HEX2}(?![\w:\-]|\.\d)")
_SWITCH_MAC = re.compile(rf"(?<![\w.])(?=[0-9.]*[A-Fa-f]){_HEX4}\.{_HEX4}\.{_HEX4}(?![\w.])")
_GUID = re.compile(rf"(?<![\w:.]){_HEX4}(?::{_HEX4}){{3}}(?![\w:.])")
# NCCL prints communicators and streams as 16 hex digits too, and pointers begin with zeros.
_HEX_GUID = re.compile(
    r"(?<!\w)(?<!comm )(?<!commId )(?<!commHash )(?<!magic )(?<!hash )(?<!opCount )(?<!stream )(?<!ptr )"
    r"0x(?!0000)[0-9A-Fa-f]{16}(?!\w)"
)
_NAMED_GUID = re.compile(
    r"(?i)(?P<head>\b(?:node|port|system|image)?[_ ]?guid\w*[\"']?\s*[:=]?\s*[\"']?)(?P<value>(?:0x)?[0-9a-f]{16})\b"
)
_IPV6 = re.compile(
    r"(?<![\w:.])(?=[0-9A-Fa-f:.%]*:[0-9A-Fa-f:.]*:)[0-9A-Fa-f:]+(?::\d+\.\d+\.\d+\.\d+)?(?:%\w+)?(?![\w:])"
)
_IPV4 = re.compile(r"(?<![\w.\-])(?:\d{1,3}\.){3}\d{1,3}(?![\w]|\.\d|-\d)")
_AWS_NAME = re.compile(r"(?i)(?<![\w.\-])(?:ip|ec2)-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3}(?:\.[a-z0-9\-]+)*")
_SERIAL = re.compile(
    r"(?i)(?P<head>\b(?:serial(?:[ _]?(?:number|num|no\.?|id))?|s/n|chassis[ _]?sn)[\"']?\s*[:=]\s*[\"']?)(?P<value>[A-Za-z0-9][\w\-]{4,})"
)
# What stands before a dotted quad that is a version: `cudnn 9.1.0.70`, `nvidia-cublas-cu12==12.1.3.1`.
_VERSION_BEFORE = re.compile(
    r"(?i)(?:[=<>~!]=|version\w*|driver|firmware|\bfw|release|revision|\brev|cudnn|cublas|cufft|curand|cusparse|cusolver|"
    r"nvjitlink|nccl|\bcuda|toolkit|nvidia-[\w\-]+|bios|vbios|libcu[\w.]*so|\bv)[\s\"'|:=(]*$"
)
_KEPT_NETWORKS = tuple(
    ipaddress.ip_network(each) for each in ("127.0.0.0/8", "0.0.0.0/8", "255.0.0.0/8", "169.254.169.254/32")
)


def replace_addresses(text: str, give: Give, *, is_version: bool = False) -> str:
    """`text` with GPU UUIDs, UUIDs, MACs, GUIDs, GIDs, IP addresses, cloud names and serials replaced through `give`.

    Loopback, netmasks, the cloud metadata address and versions stay; `is_version` says that dotted quads are
    versions here.
    """
    if not any(char.isdigit() for char in text):
        return text
    text = _GPU_UUID.sub(lambda m: give(f"{m['kind'].lower()}-uuid", m[0].lower(), m[0]), text)
    text = _UUID.sub(lambda m: give("uuid", m[0].lower(), m[0]), text)
    text = _SERIAL.sub(lambda m: m["head"] + give("serial", m["value"], m["value"]), text)
    text = _NAMED_GUID.sub(lambda m: m["head"] + give("guid", _hex_digits(m["value"]), m["value"]), text)
    text = _HEX_GUID.sub(lambda m: give("guid", _hex_digits(m[0]), m[0]), text)
    text = _GUID.sub(lambda m: give("guid", _hex_digits(m[0]), m[0]), text)
    if ":" in text or "-" in text:
        text = _MAC.sub(lambda m: _mac(m[0], give), text)
    text = _SWITCH_MAC.sub(lambda m: _mac(m[0], give), text)
    text = _IPV6.sub(lambda m: _ipv6(m[0], give), text)
    text = _AWS_NAME.sub(lambda m: give("host", m[0].partition(".")[0].lower(), m[0]), text)
    if is_version:
        return text
    return _IPV4.sub(lambda m: _ipv4(m, give), text)


def is_ip(text: str) -> bool:
    """True when the whole of `text` is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _hex_digits(text: str) -> str:
    return re.sub(r"[^0-9a-f]", "", text.lower().removeprefix("0x"))


def _mac(text: str, give: Give) -> str:
    digits = _hex_digits(text)
    if set(digits) <= {"0"} or set(digits) <= {"f"}:
        return text
    return give("mac", digits, text)


def _ipv6(text: str, give: Give) -> str:
    address_text, _, zone = text.partition("%")
    trailing = ":" if address_text.endswith(":") and not address_text.endswith("::") else ""
    try:
        address = ipaddress.IPv6Address(address_text.removesuffix(":") if trailing else address_text)
    except ValueError:
        return text
    # `a::b` may be a scope of C++; an address has a digit and more than two groups, or a known prefix.
    groups = [group for group in address_text.split(":") if group]
    if address.is_loopback or address.is_unspecified or not any(char.isdigit() for char in address_text):
        return text
    if len(groups) < 3 and not groups[0].lower().startswith(("fe80", "fd", "fc", "2", "3")):
        return text
    kind = "gid" if len(groups) == 8 and all(len(group) == 4 for group in groups) else "ip"
    # One address has many spellings; a GID and the same address written short are one.
    return (
        give(kind, address.exploded, text.removesuffix(":") if trailing else text)
        + trailing
        + (f"%{zone}" if zone else "")
    )


def _ipv4(match: re.Match[str], give: Give) -> str:
    try:
        address = ipaddress.IPv4Address(match[0])
    except ValueError:
        return match[0]
    if any(address in network for network in _KEPT_NETWORKS):
        return match[0]
    if _VERSION_BEFORE.search(match.string[max(0, match.start() - 60) : match.start()]):
        return match[0]
    return give("ip", str(address), match[0])
