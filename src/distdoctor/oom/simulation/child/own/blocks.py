"""Which parts of a module repeat? What FSDP2 shards one by one, and what checkpointing computes again."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

# A list of small things, such as heads or embeddings, is no depth of a network. Our own choice.
_MIN_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """One container of modules of the same class."""

    name: str
    container: nn.Module
    children: tuple[str, ...]
    kind: str

    def modules(self) -> list[nn.Module]:
        """The blocks as they are now: they may have been wrapped."""
        return [self.container.get_submodule(child) for child in self.children]

    def put(self, child: str, block: nn.Module) -> None:
        """`block` in place of one of them."""
        self.container._modules[child] = block

    def words(self) -> str:
        """`12 x Block in transformer.h`."""
        return f"{len(self.children)} x {self.kind} in {self.name or 'the module'}"


def blocks_of(root: nn.Module) -> tuple[Blocks, ...]:
    """The outermost lists of at least two modules of one class, each with a share of the parameters: the layers of a
    transformer, encoder and decoder, the stages of a vision model."""
    total = _numel(root)
    found: list[Blocks] = []
    waiting = [("", root)]
    while waiting:
        name, module = waiting.pop(0)
        blocks = _of(name, module)
        if blocks is not None and _numel(module) >= _MIN_SHARE * total:
            found.append(blocks)
            continue
        waiting += [(f"{name}.{child}".lstrip("."), each) for child, each in module.named_children()]
    return tuple(found)


def _of(name: str, module: nn.Module) -> Blocks | None:
    if not isinstance(module, (nn.ModuleList, nn.Sequential, nn.ModuleDict)):
        return None
    children = list(module.named_children())
    kinds = {type(child) for _, child in children}
    if len(children) < 2 or len(kinds) != 1 or not all(_numel(child) for _, child in children):
        return None
    return Blocks(
        name=name,
        container=module,
        children=tuple(child for child, _ in children),
        kind=kinds.pop().__name__,
    )


def _numel(module: nn.Module) -> int:
    return sum(each.numel() for each in module.parameters())
