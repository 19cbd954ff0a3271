"""Which parts of a text are secrets? Masks tokens, passwords, keys, e-mail addresses and home paths.

Two kinds of knowledge: what a secret is called (`HF_TOKEN=…`, `--password …`, `Authorization: …`) and what it
looks like (`hf_…`, `AKIA…`, a JWT, a PEM block, a URL with a password). Random-looking hex or base64 is masked
only beside such a name: ids, checksums and UUIDs are evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from distdoctor.report.secret_names import Secrecy, is_benign, secrecy_of
from distdoctor.report.word_set import word_set

SECRET = "[secret]"  # noqa: S105 - what stands in a secret's place
EMAIL = "[email]"
USER = "[user]"

# Words without which no rule by name can apply; most texts stop here.
_NAME_HINT = re.compile(
    r"token|secret|passw|passphrase|pwd|_pass\b|key|cred|auth|session|cookie|jwt|bearer", re.IGNORECASE
)

# Colour codes stand between a name and its value in logs; `seal` has made them visible as `\x1b[32m`.
_ANSI = r"(?:(?:\\x1b|\x1b)\[[0-9;]*m)*"
_QUOTE = r"""\\*["'`]"""

_NAMED = re.compile(
    rf"""(?<![A-Za-z0-9_.\-])
    (?P<name>-{{0,2}}[A-Za-z_][A-Za-z0-9_.\-]*)
    (?: (?P<assign>{_ANSI}(?:{_QUOTE}|\])?{_ANSI}[ \t]*(?::=|=>|=|:){_ANSI}[ \t]*)
      | (?P<list>{_QUOTE}\s*,\s*(?={_QUOTE}))
      | (?P<space>[ \t]+)
    )""",
    re.VERBOSE,
)
_QUOTED = re.compile(r"""[bBrRuU]{0,2}(?P<open>\\*(?P<mark>["'`]))""")
# Unquoted: up to white space; a quote inside a word belongs to the value, one that ends it does not.
_BARE = re.compile(r"""(?:[^\s"'`]|["'`](?=\w))+""")
_TO_LINE_END = re.compile(r"""[^\n⏎"'`]+""")
_SCHEME = re.compile(r"(?:bearer|basic|digest|token|negotiate|apikey)\s+", re.IGNORECASE)
_HEADERS = frozenset(("authorization", "proxy-authorization", "cookie", "set-cookie"))
# First words of what the system says of a file.
_ERRORS_BEGIN = frozenset(
    ("Permission", "No", "Is", "Not", "File", "Too", "Input/output", "Read-only", "Operation")
)
_TRAILING = ",;:.)]}>…"

# Kubernetes and task definitions: the name and the value are siblings.
_SIBLINGS = re.compile(
    r"""(?P<head>\bname["']?\s*[:=]\s*["']?(?P<name>[A-Za-z_][\w.\-]*)["']?[,\s⏎]+["']?value["']?\s*[:=]\s*["']?)"""
    r"""(?P<value>[^\s"',}]+)""",
    re.IGNORECASE,
)

_EDGE = r"(?<![A-Za-z0-9])"
_SHAPES = re.compile(
    "|".join(
        (
            r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|\Z)",
            _EDGE + r"hf_(?:(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{10,}|[a-z]{24,})",
            _EDGE + r"api_org_[A-Za-z0-9]{16,}",
            _EDGE + r"gh[pousr]_[A-Za-z0-9]{12,}",
            _EDGE + r"github_pat_[A-Za-z0-9_]{12,}",
            _EDGE + r"gl(?:pat|dt|rt|cbt|ptt)-[A-Za-z0-9_\-]{12,}",
            _EDGE + r"npm_[A-Za-z0-9]{24,}",
            _EDGE + r"pypi-[A-Za-z0-9_\-]{32,}",
            _EDGE + r"[srp]k[-_](?=[A-Za-z_\-]*[0-9])[A-Za-z0-9_\-]{12,}",
            _EDGE + r"(?:AKIA|ASIA|AROA|AIDA|AGPA|ANPA|ANVA|AIPA)[A-Z0-9]{12,}",
            _EDGE + r"xox[a-z]-[A-Za-z0-9\-]{6,}",
            _EDGE + r"xapp-[A-Za-z0-9\-]{10,}",
            _EDGE + r"AIza[A-Za-z0-9_\-]{20,}",
            _EDGE + r"ya29\.[A-Za-z0-9_\-]{10,}",
            _EDGE + r"nvapi-[A-Za-z0-9_\-]{16,}",
            _EDGE + r"dop_v1_[a-f0-9]{16,}",
            _EDGE + r"eyJ[A-Za-z0-9_\-]{6,}\.[A-Za-z0-9_\-]{4,}(?:\.[A-Za-z0-9_\-]*)*",
        )
    )
)
_HINT_OF_SHAPE = re.compile(
    r"-----BEGIN|_|[srp]k-|A[KSRIGN][IOPND]A|AIPA|AIza|xox|xapp-|ya29|nvapi-|pypi-|gl[a-z]{2,3}-|eyJ"
)

_CONTEXTS = (
    # scheme://user:password@host; the password may hold a slash, a port with a path is none.
    re.compile(r"(?<=://)[^\s/:@\"']*:(?!\d+[/?#,])[^\s@\"']+(?=@[\w.\[\-])"),
    # scheme://TOKEN@host
    re.compile(r"(?<=://)(?=[A-Za-z_\-]*[0-9])[^\s/:@?#\"'\[\]]{16,}(?=@[\w.\[\-])"),
    re.compile(r"(?i)(?<=\bbearer )(?=\S*\d)[A-Za-z0-9._~+/=\-]{8,}"),
    re.compile(r"(?i)(?<=\bbearer )[A-Za-z0-9._~+/=\-]{20,}"),
    # Signed URLs: the signature lets anybody fetch the object.
    re.compile(r"(?i)(?<=[?&]sig=)[^\s&\"']{12,}|(?<=-signature=)[^\s&\"']{12,}"),
    re.compile(r"(?<=hooks\.slack\.com/services/)[^\s\"'\[]+"),
    re.compile(r"(?<=/api/webhooks/)[^\s\"'\[]+"),
)
_COMMANDS = (
    re.compile(
        r"(?P<head>\b(?:curl|wget)\b[^\n⏎|;]*?\s(?:-u|--user)[ =]?[\"']?)(?P<value>[^\s:\"'\[]+:[^\s\"']+)"
    ),
    re.compile(r"(?P<head>\bsshpass\s+-p\s*[\"']?)(?P<value>[^\s\"'\[]+)"),
    re.compile(r"(?P<head>\blogin(?:\s+-\S+)*\s+)(?P<value>[0-9a-f]{40}\b)"),
    re.compile(r"(?P<head>\blogin\s+\S+\s+password\s+)(?P<value>[^\s\[]+)"),
)

# Not e-mail though they look it: systemd instances (`user@1000.service`) and symbols in files.
_NO_TLD = word_set(
    "service socket timer mount automount scope slice target device path swap so py c cc cpp cu cuh h hpp json "
    "yaml yml toml log txt sh md whl gz zst"
)
_SERVICE_USERS = frozenset(("root", "git", "nobody"))
_EMAIL = re.compile(
    r"(?<![\w.+\-/@])(?P<user>[\w.+%\-]+)@(?P<domain>[\w\-]+(?:\.[\w\-]+)*\.(?P<tld>[^\W\d_]{2,}))(?![\w])"
)
_HOME = re.compile(
    r"(?P<head>/(?:home|Users)/|\b[A-Za-z]:\\{1,2}Users\\{1,2}|(?<![\w/~.\-])~(?=[A-Za-z_][\w.\-]*/))"
    r"(?P<name>(?![.$*<{%…\[])[^/\\\s:\"'`,;<>|()\[\]{}=…]+)"
)


def mask_text(text: str) -> tuple[str, int]:
    """`text` with secrets, e-mail addresses and home directories masked, and how many were masked.

    Idempotent: what it puts in is never masked again. Linear in the length of `text`.
    """
    masked, secrets, others = find_secrets(text)
    return masked, len(secrets) + others


def find_secrets(text: str) -> tuple[str, list[str], int]:
    """`text` masked, the secrets that were taken out, and how many addresses and home paths were masked."""
    secrets: list[str] = []
    if _HINT_OF_SHAPE.search(text):
        text = _SHAPES.sub(_keeping(secrets), text)
    if "://" in text or "earer" in text.lower() or "EARER" in text:
        for context in _CONTEXTS:
            text = context.sub(_keeping(secrets), text)
    if "login" in text or "curl" in text or "wget" in text or "sshpass" in text:
        for command in _COMMANDS:
            text = command.sub(_keeping_head(secrets), text)
    if _NAME_HINT.search(text):
        text = _SIBLINGS.sub(_keeping_named(secrets), text)
        text = _mask_named(text, secrets)
    others = 0
    if "@" in text:
        text, count = _mask_email(text)
        others += count
    if "/home/" in text or "Users" in text or "~" in text:
        text, count = _HOME.subn(rf"\g<head>{USER}", text)
        others += count
    return text, secrets, others


def mask_value(name: str, value: str) -> tuple[str, int]:
    """`value` of something called `name`: masked whole when the name says that it is a secret."""
    secrecy = secrecy_of(name)
    if secrecy is Secrecy.NONE or is_benign(value.strip(), secrecy) or _is_placeholder(value.strip()):
        return value, 0
    return SECRET, 1


def _keeping(secrets: list[str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        if _is_placeholder(match[0]):
            return match[0]
        secrets.append(match[0])
        return SECRET

    return replace


def _keeping_head(secrets: list[str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        if _is_placeholder(match["value"]):
            return match[0]
        secrets.append(match["value"])
        return match["head"] + SECRET

    return replace


def _keeping_named(secrets: list[str]) -> Callable[[re.Match[str]], str]:
    def replace(match: re.Match[str]) -> str:
        secrecy = secrecy_of(match["name"])
        value = match["value"]
        if secrecy is Secrecy.NONE or is_benign(value, secrecy) or _is_placeholder(value):
            return match[0]
        secrets.append(value)
        return match["head"] + SECRET

    return replace


def _is_placeholder(value: str) -> bool:
    stripped = value.rstrip(_TRAILING.replace("]", ""))
    return stripped in {SECRET, EMAIL, USER, ""} or value.startswith("…")


def _mask_named(text: str, secrets: list[str]) -> str:
    parts: list[str] = []
    done = position = 0
    while match := _NAMED.search(text, position):
        position = max(match.end("name"), match.start("name") + 1)
        secrecy = secrecy_of(match["name"])
        if secrecy is Secrecy.NONE:
            continue
        span = _value_span(text, match, secrecy)
        if span is None:
            continue
        start, end = span
        parts += (text[done:start], SECRET)
        secrets.append(text[start:end])
        done = position = end
    return "".join((*parts, text[done:])) if parts else text


def _value_span(text: str, match: re.Match[str], secrecy: Secrecy) -> tuple[int, int] | None:
    """Where the value of a secret-like name stands; None when there is none or it is no secret."""
    name, start = match["name"], match.end()
    if match["list"] is not None and not name.startswith("--"):
        return None
    if match["space"] is not None and not name.startswith("--") and not name.isupper():
        return None
    if name.lower() in _HEADERS and match["assign"] is not None:
        scheme = _SCHEME.match(text, start)
        start = scheme.end() if scheme else start
        rest = _TO_LINE_END.match(text, start)
        return _kept(text, start, rest.end(), secrecy, quoted=True) if rest else None
    if quoted := _QUOTED.match(text, start):
        start = quoted.end()
        end = _closing(text, start, quoted["open"])
        return _kept(text, start, end, secrecy, quoted=True)
    bare = _BARE.match(text, start)
    if bare is None:
        return None
    if text[bare.start() : bare.end()].startswith(SECRET):
        return None
    if match["space"] is not None and bare[0].startswith("-"):
        return None
    end = start + len(bare[0].rstrip(_TRAILING))
    value = text[start:end]
    if match["space"] is not None and not name.startswith("--"):
        # `HF_TOKEN   abc…` in a listing, against `HF_TOKEN is not set`.
        return (start, end) if len(value) >= 8 and _looks_random(value) else None
    if "`" in (match["assign"] or "") and bare[0] in _ERRORS_BEGIN:
        return None  # "cannot read `token.txt`: Permission denied"
    prose = (
        ":" in (match["assign"] or "") and "=" not in match["assign"] and "-" not in name and "_" not in name
    )
    key_quoted = bool(re.search(r"[\"'`]", match["assign"] or ""))
    if secrecy is Secrecy.WEAK and prose and not key_quoted and not _looks_random(value) and len(value) < 12:
        return None
    return _kept(text, start, end, secrecy, quoted=False)


def _closing(text: str, start: int, mark: str) -> int:
    """Index of the quote that closes a value; the end of the line when none does."""
    position = start
    while (found := text.find(mark, position)) >= 0:
        backslashes = 0
        while found - backslashes > start and text[found - backslashes - 1] == "\\":
            backslashes += 1
        if backslashes % 2 == 0:
            return found
        position = found + 1
    line_end = re.compile(r"[\n⏎]").search(text, start)
    return line_end.start() if line_end else len(text)


def _kept(text: str, start: int, end: int, secrecy: Secrecy, *, quoted: bool) -> tuple[int, int] | None:
    value = text[start:end].strip()
    if not value or _is_placeholder(value) or value.startswith(SECRET) or is_benign(value, secrecy):
        return None
    if quoted:
        start += len(text[start:end]) - len(text[start:end].lstrip())
        end = start + len(value)
    return start, end


def _looks_random(value: str) -> bool:
    return any(char.isdigit() for char in value)


def _mask_email(text: str) -> tuple[str, int]:
    count = 0

    def replace(match: re.Match[str]) -> str:
        nonlocal count
        if match["tld"].lower() in _NO_TLD or match["user"] in _SERVICE_USERS:
            return match[0]
        count += 1
        return EMAIL

    return _EMAIL.sub(replace, text), count
