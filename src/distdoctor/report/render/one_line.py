"""A report in one line for `pdsh … | dshbak -c` and prolog logs: state, host, what, drain, id."""

from __future__ import annotations

from distdoctor.report.model import Report, Status
from distdoctor.report.pseudonyms import short_name
from distdoctor.report.reading import ranked

MAX_CHARS = 80
# Fixed widths, so that what is cut does not depend on the host's name: equal hosts must fold to one line.
MAX_HOST = 16
MAX_ID = 32
_NO_HOST = "-"
_DRAIN = {"yes": "yes", "no": "no", "not enough evidence": "unknown"}


def render_one_line(report: Report) -> str:
    """`critical host-a /dev/shm is only 64 MiB drain=no shm-too-small`; at most 80 characters, no newline."""
    findings = ranked(report.findings)
    state = report.verdict.status.value
    worst = "".join(findings[0].id.split()) if findings else "-"
    tail = f"drain={_drain(report)} {_cut(worst, MAX_ID)}"
    host = _host(report)
    # A report on no host is not folded with those of others.
    room = MAX_CHARS - len(state) - (MAX_HOST if host != _NO_HOST else len(host)) - len(tail) - 3
    what = _cut(" ".join(report.verdict.title.split()), room)
    return f"{state} {host} {what} {tail}"


def _host(report: Report) -> str:
    accused = dict.fromkeys(each.host for each in report.culprits if each.role == "culprit" and each.host)
    hosts = list(accused) or list(report.subject.hosts)
    if not hosts:
        return _NO_HOST
    name = hosts[0] if len(hosts) == 1 else f"{len(hosts)}-hosts"
    short = name if name.replace(".", "").isdigit() else short_name(name)
    return _cut("".join(short.split()), MAX_HOST)


def _drain(report: Report) -> str:
    answers = {drain.answer for drain in report.drain}
    for answer in ("yes", "not enough evidence", "no"):
        if answer in answers:
            return _DRAIN[answer]
    # Nobody said: nothing here asks to drain a host on which no fault was found; else it is open.
    return "no" if report.verdict.status is Status.OK else "unknown"


def _cut(text: str, limit: int) -> str:
    """`text` in at most `limit` characters; `~` shows that it was cut."""
    return text if len(text) <= limit else text[: limit - 1].rstrip() + "~"
