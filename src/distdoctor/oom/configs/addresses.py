"""Addresses where ranks meet, as they stand in configurations: is it one, or a place to fill in?"""

from __future__ import annotations

import ipaddress
import re

from distdoctor.oom.configs.text.values import template_in

_WORDS = re.compile(
    r"(?:^|[_\W])(?:your|fill|change|changeme|replace|todo|placeholder|insert)(?:[_\W]|$)|"
    r"^my[_-]?(?:ip|addr|address|host|hostname|node|master)$|\bexample\.(?:com|org|net)$|"
    r"^(?:(?:main|master|head|host|node|server|rank)[_-]?)*(?:process[_-]?|node[_-]?|0[_-]?)*(?:ip|addr|address|hostname)(?:[_-]?here)?$|"
    r"^(?:xx+|x|\.\.\.+|tbd|n/?a|foo|bar)$",
    re.IGNORECASE,
)
_LETTERS_IN_QUAD = re.compile(r"^(?:(?:\d{1,3}|[a-z]{1,3}|\*)\.){3}(?:\d{1,3}|[a-z]{1,3}|\*)$", re.IGNORECASE)
_HOST = re.compile(r"^(?=.{1,253}$)(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?$")

LOOPBACK = frozenset({"localhost", "localhost.localdomain", "::1", "0.0.0.0", "::", "[::]"})  # noqa: S104 - compared, never bound


def placeholder_reason(text: str) -> str | None:
    """Why `text` cannot be an address: `a number, not an address`; None when it may be one.

    A variable that a template fills in is no placeholder: somebody fills it in.
    """
    text = text.strip()
    if template_in(text) and not text.startswith("<"):
        return None
    if text.startswith("<") or text.endswith(">"):
        return "a place to fill in"
    host = _without_port(text)
    if not host:
        return "empty"
    if host.isdigit():
        return "a number, not an address"
    if _is_ip(host):
        return None
    if _LETTERS_IN_QUAD.match(host):
        return "an address with a part that is no number from 0 to 255"
    if _WORDS.search(host):
        return "a place to fill in"
    if not _HOST.match(host):
        return "neither a host name nor an address"
    return None


def is_loopback(text: str) -> bool:
    """Whether every host that reads this address would meet itself."""
    host = _without_port(text.strip())
    if host.lower() in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _without_port(text: str) -> str:
    found = re.fullmatch(r"(\[[0-9A-Fa-f:]+\]|[^:]*):\d+", text)
    return found.group(1) if found else text
