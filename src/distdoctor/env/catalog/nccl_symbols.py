"""Which NCCL release first had a function: names what `undefined symbol: ncclCommResume` asks for."""

from __future__ import annotations

from dataclasses import dataclass

from distdoctor.env.catalog.tables import read_table


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolOrigin:
    """The first release with a symbol, and whether that was seen in the releases themselves."""

    version: str
    is_measured: bool


def nccl_symbol_origin(symbol: str) -> SymbolOrigin | None:
    """First NCCL release that exports `symbol`; None when it is older than our table or unknown to it."""
    table = read_table("nccl_symbols")
    name = symbol.removeprefix("p") if symbol.startswith("pnccl") else symbol
    if name in table["measured"]:
        return SymbolOrigin(version=table["measured"][name], is_measured=True)
    if name in table["guarded"]:
        return SymbolOrigin(version=table["guarded"][name], is_measured=False)
    return None
