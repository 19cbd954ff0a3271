"""Does this name say that its value is a secret? `WANDB_API_KEY` does, `num_tokens` and `eos_token_id` do not."""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache
from itertools import pairwise

from distdoctor.report.word_set import word_set


class Secrecy(Enum):
    """How much a name says: `STRONG` masks any value, `WEAK` leaves small numbers and plain words of prose."""

    NONE = 0
    WEAK = 1
    STRONG = 2


_STRONG_ENDINGS = (
    "password", "passwords", "passwd", "passphrase", "passcode", "secret", "secrets",
    "apikey", "accesskey", "secretkey", "privatekey", "authtoken", "accesstoken", "apitoken",
)  # fmt: skip
_WEAK_WORDS = word_set(
    "auth oauth oauth2 authorization session sessionid cookie cookies credential credentials creds bearer jwt"
)
# `api key`, `access key` …: a key is a secret by what stands before it.
_KEY_OWNERS = word_set(
    "api access private secret account signing encryption auth session service storage ssh deploy subscription "
    "license client shared master webhook wandb openai anthropic"
)
# The last word says that the value is about the secret: its file, its type, its length.
_ABOUT = word_set(
    "file path dir type method mode timeout ttl name names count num len length size limit class plugin provider "
    "version enabled required sock socket manager address expiry expires parallelism s ms sec seconds bytes "
    "status state error errors valid"
)
# Tokens of language models.
_LM_WORDS = word_set(
    "id ids pad eos bos unk sep mask cls special image audio video begin end next first last per num max min new "
    "prompt completion input output total vocab position type index drop dropped mean avg loss text word sub"
)
_BENIGN_WORDS = word_set(
    "true false yes no none null nil unset set missing required enabled disabled on off not is was are and or the a "
    "an for in of to from with without empty invalid expired present absent n/a nan 0 1 undefined default"
)
_NUMBER = re.compile(r"[+-]?[\d.,_]{1,9}(?:e[+-]?\d+)?(?:%|[kKmMgGtT]i?[bB]?|ms|us|s)?")
_VARIABLE = re.compile(
    r"\$\{?[A-Z_][A-Z0-9_]*\}?|\$\([^)]*\)|%\([a-z_]+\)s|\{[a-z_]*\}|<[a-z _\-]+>|\*{3,}|x{4,}|\.{3}"
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORDS = re.compile(r"[^A-Za-z0-9]+")


@lru_cache(maxsize=4096)
def secrecy_of(name: str) -> Secrecy:
    """What `name` (a variable, option, header, JSON key or column) says about its value."""
    words = [word.lower() for word in _WORDS.split(_CAMEL.sub("_", name)) if word]
    if not words or words[-1] in _ABOUT:
        return Secrecy.NONE
    if any(word.endswith(_STRONG_ENDINGS) for word in words):
        return Secrecy.STRONG
    if any(second in {"key", "keys"} and first in _KEY_OWNERS for first, second in pairwise(words)):
        return Secrecy.STRONG
    if len(words) > 1 and name.isupper() and words[-1] in {"pass", "pwd", "key"}:
        return Secrecy.STRONG if words[-1] != "key" else Secrecy.WEAK
    if any(word in _WEAK_WORDS for word in words):
        return Secrecy.WEAK
    if any(word.endswith("token") for word in words) and not any(word in _LM_WORDS for word in words):
        return Secrecy.WEAK
    return Secrecy.NONE


def is_benign(value: str, secrecy: Secrecy) -> bool:
    """True when `value` cannot be the secret itself: a switch, a reference to a variable, a small number."""
    bare = value.strip("\"'`,;:.)]}>")
    if not bare or bare.lower() in _BENIGN_WORDS or _VARIABLE.fullmatch(bare):
        return True
    return secrecy is Secrecy.WEAK and bool(_NUMBER.fullmatch(bare))
