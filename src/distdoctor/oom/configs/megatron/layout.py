"""Pipeline layouts of Megatron-LM: `--pipeline-model-parallel-layout "Et*3|(tt|)*6tmL"`.

E is the embedding, t a transformer layer, m a multi-token-prediction layer, L the loss; `|` ends a stage
(`megatron/core/transformer/pipeline_parallel_layer_layout.py`).
"""

from __future__ import annotations

import re

_GROUP = re.compile(r"\(([^()]*)\)\*(\d{1,4})")
_SINGLE = re.compile(r"([EtmL|])\*(\d{1,4})")
MAX_STAGES = 4096


def stages_of_layout(text: str) -> tuple[str, ...] | None:
    """Letters of each stage, in order (`("Ettt", "tt", …, "tmL")`); None when `text` is no layout."""
    layout = re.sub(r"[\s,\"']", "", text)
    if not layout or len(layout) > MAX_STAGES:
        return None
    layout = _GROUP.sub(lambda match: match[1] * int(match[2]), layout)
    layout = _SINGLE.sub(lambda match: match[1] * int(match[2]), layout)
    if not re.fullmatch(r"[EtmL|]+", layout) or len(layout) > 16 * MAX_STAGES:
        return None
    return tuple(layout.split("|"))
