"""The kernel log of a machine: whichever way is open, and the reason when none is."""

from __future__ import annotations

from pathlib import Path

from distdoctor.env.checks import kernel_xid
from distdoctor.env.checks.base import NotSeen, Passed
from distdoctor.env.collect.kernel_log import collect_kernel_log
from distdoctor.env.facts.all import EnvFacts
from distdoctor.env.facts.kernel_log import KernelEventKind
from distdoctor.report.model import SkipCause
from fake_world import make_world

XID = "NVRM: Xid (PCI:0000:9a:00): 48, pid=1, name=python3, DBE"
UPTIME = {"/proc/uptime": "200000.00 100.00\n"}


def script(text: str, code: int = 0) -> str:
    return f"#!/bin/sh\n{text}\nexit {code}\n"


def test_records_of_kmsg_get_their_age(tmp_path: Path) -> None:
    records = f"6,1,1000000,-;Linux version 6.8.0\n SUBSYSTEM=x\n3,2,199000000000,-;{XID}\n"
    log = collect_kernel_log(make_world(tmp_path, {"/dev/kmsg": records, **UPTIME}), timeout_s=5)
    assert log.source == "/dev/kmsg" and log.num_lines == 2 and log.events is not None
    (event,) = log.events
    assert (event.kind, event.code) == (KernelEventKind.XID, 48)
    assert event.seconds_ago == 1000.0 and event.utc is not None
    assert log.oldest_s == 199999.0 and log.covers_since_utc is not None


def test_dmesg_is_asked_when_kmsg_is_not_there(tmp_path: Path) -> None:
    tree = {"/usr/bin/dmesg": script(f"echo '[ 5.000001] {XID}'"), **UPTIME}
    log = collect_kernel_log(make_world(tmp_path, tree), timeout_s=5)
    assert log.source == "dmesg" and len(log.events or ()) == 1


def test_the_journal_is_asked_when_dmesg_is_denied(tmp_path: Path) -> None:
    tree = {
        "/usr/bin/dmesg": script("echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2", 1),
        "/usr/bin/journalctl": script(f"echo '2026-11-30T01:02:03+0000 n1 kernel: {XID}'"),
    }
    log = collect_kernel_log(make_world(tmp_path, tree), timeout_s=5)
    assert log.source == "journalctl -k" and log.events is not None
    assert log.events[0].utc == "2026-11-30T01:02:03Z"


def test_of_a_log_file_only_the_kernels_lines_count(tmp_path: Path) -> None:
    text = f"Nov 30 01:02:03 n1 app[3]: quoting {XID}\nNov 30 01:02:03 n1 kernel: [ 5.000001] {XID}\n"
    log = collect_kernel_log(make_world(tmp_path, {"/var/log/messages": text}), timeout_s=5)
    assert log.source == "/var/log/messages" and log.num_lines == 1 and len(log.events or ()) == 1


def test_what_may_not_be_read_is_unread_with_the_way_to_get_it(tmp_path: Path) -> None:
    tree = {
        "/usr/bin/dmesg": script("echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2", 1),
        "/usr/bin/journalctl": script(
            "echo 'No journal files were opened due to insufficient permissions.' >&2"
        ),
    }
    log = collect_kernel_log(make_world(tmp_path, tree), timeout_s=5)
    assert log.events is None
    unread = log.unread["events"]
    assert unread.cause is SkipCause.NEEDS_ROOT and "not permitted" in unread.reason and unread.how
    (outcome,) = kernel_xid.CHECK.run(EnvFacts(kernel_log=log))
    assert isinstance(outcome, NotSeen)


def test_an_empty_log_in_a_container_is_hidden_and_not_clean(tmp_path: Path) -> None:
    tree = {"/usr/bin/dmesg": script("true"), "/.dockerenv": ""}
    log = collect_kernel_log(make_world(tmp_path, tree), timeout_s=5)
    assert log.events is None and log.unread["events"].cause is SkipCause.IN_CONTAINER


def test_a_tool_that_hangs_is_left(tmp_path: Path) -> None:
    log = collect_kernel_log(make_world(tmp_path, {"/usr/bin/dmesg": script("exec sleep 30")}), timeout_s=0.2)
    assert log.events is None and log.unread["events"].cause is SkipCause.TIMED_OUT


def test_a_log_that_was_read_and_is_quiet_passes(tmp_path: Path) -> None:
    records = "6,1,1000000,-;usb 1-1: new device\n"
    log = collect_kernel_log(make_world(tmp_path, {"/dev/kmsg": records, **UPTIME}), timeout_s=5)
    (outcome,) = kernel_xid.CHECK.run(EnvFacts(kernel_log=log))
    assert isinstance(outcome, Passed) and "/dev/kmsg" in outcome.detail
