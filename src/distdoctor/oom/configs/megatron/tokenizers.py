"""How many tokens a Megatron-LM job's tokenizer knows, as far as its arguments tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distdoctor.oom.configs.text.values import as_int

# GPT-2's byte-pair encoding, the default of pretrain_gpt.py (`args_defaults={'tokenizer_type': 'GPT2BPETokenizer'}`).
GPT2_VOCABULARY = 50257

# Sizes that the files' or repositories' authors published, by what their names contain; the longest match counts.
_BY_NAME = (
    ("nemotron_2_256k", 256_000),
    ("nemotron-3", 131_072),
    ("multimixv2", 256_000),
    ("llama-3", 128_256),
    ("llama3", 128_256),
    ("llama-2", 32_000),
    ("llama2", 32_000),
    ("mixtral", 32_000),
    ("mistral-7b", 32_000),
    ("mistral-nemo", 131_072),
    ("qwen2", 151_936),
    ("qwen3", 151_936),
    ("deepseek-v2", 102_400),
    ("deepseek-v3", 129_280),
    ("deepseek-r1", 129_280),
    ("gpt2", GPT2_VOCABULARY),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Vocabulary:
    """Tokens before padding, and how that is known. `size` is None when the arguments do not tell."""

    size: int | None
    how: str
    is_certain: bool = False


def vocabulary_of(args: Mapping[str, str]) -> Vocabulary:
    """Size of the vocabulary that `args` ask for, before it is padded."""
    stated = as_int(args.get("vocab-size"))
    kind = args.get("tokenizer-type", "GPT2BPETokenizer")
    if stated is not None:
        # NullTokenizer adds one token for the end of a document (megatron/training/tokenizer/tokenizer.py); where
        # padding has to be computed, `--vocab-size` itself is padded.
        return Vocabulary(size=stated, how="--vocab-size", is_certain=True)
    model = args.get("tokenizer-model", "")
    if kind in ("GPT2BPETokenizer", "GPTTokenizer") and not model:
        return Vocabulary(size=GPT2_VOCABULARY, how=f"GPT-2's vocabulary of {GPT2_VOCABULARY:,} tokens")
    name = model.lower()
    found = [(key, size) for key, size in _BY_NAME if key in name]
    if found:
        key, size = max(found, key=lambda each: len(each[0]))
        return Vocabulary(size=size, how=f"{size:,} tokens, by the tokenizer's name `{key}`")
    if kind == "Llama2Tokenizer":
        return Vocabulary(size=32_000, how="32,000 tokens, the vocabulary of Llama 2's tokenizer")
    if kind == "TikTokenizer":
        # `DEFAULT_TIKTOKEN_MAX_VOCAB` in megatron/training/tokenizer/tokenizer.py.
        return Vocabulary(size=1 << 17, how="131,072 tokens, TikTokenizer's default")
    return Vocabulary(size=None, how=f"{kind} takes its vocabulary from a file that is not here")
