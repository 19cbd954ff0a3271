"""Names become pseudonyms: everywhere, consistently, and without wrecking what is no name."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import replace

from distdoctor.report.codec import encode
from distdoctor.report.model import (
    Column,
    Fact,
    GpuRef,
    Report,
    RuledOut,
    Scope,
    Series,
    Subject,
    Table,
    Tool,
    Verdict,
)
from distdoctor.report.pseudonyms import Pseudonyms, host_identities, is_pseudonym, key_id
from distdoctor.report.redact import redact, redacted_host
from distdoctor.report.render.html import render_html
from distdoctor.report.render.markdown import render_markdown
from distdoctor.report.render.one_line import render_one_line
from distdoctor.report.render.text import render_text
from report.builders import slow_gpu
from report.generated import reports

KEY = b"0123456789abcdef-a"
OTHER = b"0123456789abcdef-b"


def report_with(*lines: str, hosts: tuple[str, ...] = (), **fields: object) -> Report:
    return Report(
        tool=Tool(name="distdoctor", version="0.1.0", command="env"),
        verdict=Verdict(status="ok", title="t", summary="s"),  # type: ignore[arg-type]
        subject=Subject(hosts=hosts),
        ruled_out=tuple(RuledOut(what=line, why="") for line in lines),
        **fields,  # type: ignore[arg-type]
    )


def redacted_lines(*lines: str, hosts: tuple[str, ...] = (), key: bytes = KEY) -> list[str]:
    return [each.what for each in redact(report_with(*lines, hosts=hosts), key).report.ruled_out]


def test_a_host_has_one_pseudonym_in_every_spelling_and_place() -> None:
    hosts = ("node001.corp.example.com", "node002")
    host = redacted_host("node001", KEY)
    lines = redacted_lines(
        "node001 and NODE001 and node001.corp.example.com", "see node001.log", "train-node001-step3", "node001:29500 down",
        "node001.other.net", hosts=hosts,
    )  # fmt: skip
    assert lines == [
        f"{host} and {host} and {host}",
        f"see {host}.log",
        f"train-{host}-step3",
        f"{host}:29500 down",
        host,
    ]


def test_longer_names_win_over_shorter_ones() -> None:
    lines = redacted_lines("gpu-node1 and node1 and node10", hosts=("node1", "gpu-node1", "node10"))
    assert lines == [" and ".join(redacted_host(name, KEY) for name in ("gpu-node1", "node1", "node10"))]


def test_one_short_name_under_two_domains_is_two_machines() -> None:
    identities = host_identities(("node1.east.example", "node1.west.example"))
    assert identities["node1.east.example"] != identities["node1.west.example"]
    assert host_identities(("node1", "node1.east.example"))["node1"] == host_identities(("node1",))["node1"]


@pytest.mark.parametrize("host", ["gpu", "node", "master", "a100", "rank0", "eth0"])
def test_a_host_with_a_common_name_does_not_wreck_the_prose(host: str) -> None:
    prose = f"the {host} is slow; every {host} has a {host} port"
    pseudonym = redacted_host(host, KEY)
    report = redact(
        report_with(prose, f"on host {host} it fails", f"{host}:12:34 [0] NCCL INFO x", hosts=(host,)), KEY
    ).report
    assert report.subject.hosts == (pseudonym,)
    told = [each.what for each in report.ruled_out]
    assert told == [prose, f"on host {pseudonym} it fails", f"{pseudonym}:12:34 [0] NCCL INFO x"]


def test_hosts_are_learnt_from_where_logs_name_them() -> None:
    for line in (
        "HOSTNAME=cn-17 then cn-17 again",
        "MASTER_ADDR=cn-17",
        "cn-17:123:456 [0] NCCL INFO Bootstrap",
        "Nov 30 03:51:01 cn-17 kernel: NVRM: Xid (PCI:0000:3b:00): 79",
        "host      : cn-17",
        "srun -N 1 -w cn-17 nvidia-smi",
    ):
        (told,) = redacted_lines(line)
        assert "cn-17" not in told, line
        assert redacted_host("cn-17", KEY) in told


def test_slurm_host_lists_are_replaced() -> None:
    a, b = redacted_host("node001", KEY), redacted_host("node002", KEY)
    assert redacted_lines("node[001-002] differ, ranks[0-7] wait", hosts=("node001", "node002")) == [
        f"{a},{b} differ, ranks[0-7] wait"
    ]
    (told,) = redacted_lines("SLURM_JOB_NODELIST=abc[01-20]")
    assert "abc" not in told


def test_addresses_are_replaced_and_versions_stay() -> None:
    (told,) = redacted_lines(
        "10.0.0.1:29500 via 10.0.0.1, net 10.1.0.0/16, driver 570.86.15, NCCL 2.28.9, cudnn 9.1.0.70, x==12.4.5.8"
    )
    assert "10.0.0.1" not in told
    assert "10.1.0.0" not in told
    assert told.endswith("driver 570.86.15, NCCL 2.28.9, cudnn 9.1.0.70, x==12.4.5.8")
    first, second = told.split()[0].partition(":")[0], told.split()[2].strip(",")
    assert first == second
    assert is_pseudonym(first)


@pytest.mark.parametrize(
    "line",
    [
        "127.0.0.1 ::1 0.0.0.0 255.255.255.0 :: 169.254.169.254",
        "c10d::Backend std::vector at::Tensor 12:34:56 0000:3B:00.0 00000000:3B:00.0",
        "commId 0x98039b0300abcdef ptr 0x00007f3c12345678 0x7f3c12345678",
        "sha256 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "torch 2.13.0+cu128 python 3.12.3 nvidia-cublas-cu12 12.1.3.1",
        "mlx5_0/1 eth0 ib0 NVIDIA H100 80GB HBM3",
        "00:00:00:00:00:00 ff:ff:ff:ff:ff:ff",
    ],
)
def test_what_identifies_nobody_stays(line: str) -> None:
    assert redacted_lines(line) == [line]


@pytest.mark.parametrize(
    ("original", "kind"),
    [
        ("fe80:0000:0000:0000:9a03:9bff:fe00:1234", "gid"),
        ("2001:db8::8a2e:370:7334", "ip"),
        ("98:03:9b:00:ab:cd", "mac"),
        ("9803:9b03:00ab:cdef", "guid"),
        ("0x98039b0300abcdef", "guid"),
        ("GPU-3b5a1f0e-1111-2222-3333-444455556666", "gpu-uuid"),
        ("MIG-3b5a1f0e-1111-2222-3333-444455556666", "mig-uuid"),
        ("3b5a1f0e-1111-2222-3333-444455556666", "uuid"),
        ("ip-10-0-1-23.ec2.internal", "host"),
    ],
)
def test_every_kind_of_identity_is_replaced(original: str, kind: str) -> None:
    (told,) = redacted_lines(f"at {original}, again {original}")
    assert original not in told
    first, second = told.removeprefix("at ").split(", again ")
    assert first == second
    assert first.startswith(f"{kind}-")


def test_users_and_serials_are_replaced() -> None:
    lines = redacted_lines(
        "USER=alice", "job of alice, owner: root", "serial number: 1324420012345", "user code is fine"
    )
    assert "alice" not in " ".join(lines)
    assert lines[1].endswith("owner: root")
    assert "1324420012345" not in lines[2]
    assert lines[3] == "user code is fine"


def test_fields_that_hold_names_are_replaced_whole() -> None:
    report = report_with(
        facts=(
            Fact(key="host.hostname", value="athena", hosts=("athena",)),
            Fact(key="gpu.0.serial", value="132442"),
            Fact(key="torch.cudnn_version", value="9.1.0.70"),
            Fact(key="net.eth0.ipv4", value="10.0.0.7"),
        ),
        tables=(Table(name="t", title="of athena", columns=(Column(name="node"), Column(name="user")), rows=(("gpu", "bob"), ("athena", "root"))),),
        series=(
            Series(name="s", title="s", kind="stacked", x=("athena", "gpu"), values=((1.0, 2.0),), limit=1.5, limit_label="what athena has"),
            Series(name="a", title="a", kind="areas", x=(1, 2), values=((1.0, 2.0),), marks=((0, "on athena"),)),
        ),
    )  # fmt: skip
    told = encode(redact(report, KEY).report).decode()
    for name in ("athena", "132442", "10.0.0.7", '"bob"', '"gpu"'):
        assert name not in told, name
    assert '"9.1.0.70"' in told
    assert '"root"' in told


def test_all_renderings_of_one_call_agree_and_hold_no_name() -> None:
    report = replace(slow_gpu(), tool=replace(slow_gpu().tool, argv=("straggler", "-o", "host-c.html")))
    told = redact(report, KEY).report
    pseudonym = redacted_host("host-c", KEY)
    for text in (
        encode(told).decode(),
        render_text(told),
        render_markdown(told),
        render_html(told),
        render_one_line(told),
    ):
        assert "host-c" not in text.replace(pseudonym, "")
        assert "GPU-3b5a1f0e" not in text
        assert "trainer-2" not in text
        assert pseudonym[:13] in text


def test_equal_keys_agree_and_other_keys_do_not() -> None:
    once, again, other = (redact(slow_gpu(), key).report for key in (KEY, KEY, OTHER))
    assert once == again
    assert once.subject.hosts != other.subject.hosts
    assert once.redaction.key_id == key_id(KEY) != other.redaction.key_id


def test_a_redacted_report_keeps_its_pseudonyms() -> None:
    once = redact(slow_gpu(), KEY).report
    assert redact(once, OTHER).report.subject.hosts == once.subject.hosts


def test_the_map_leads_back() -> None:
    result = redact(slow_gpu(), KEY)
    assert result.originals[redacted_host("host-c", KEY)] == "host-c"
    assert "GPU-3b5a1f0e-0d3c-4c1b-9f57-0a1b2c3d4e5f" in result.originals.values()


def test_pseudonyms_are_unique_even_if_digits_collide() -> None:
    pseudonyms = Pseudonyms(KEY)
    given_names = {pseudonyms.give("host", f"n{number}") for number in range(5_000)}
    assert len(given_names) == 5_000


def test_scopes_and_gpus_are_replaced() -> None:
    finding = replace(
        slow_gpu().findings[0],
        scope=Scope(
            hosts=("host-c",),
            gpus=(GpuRef(host="host-c", index=1, uuid="weird-uuid"),),
            links=("host-c mlx5_3/1",),
        ),
    )
    scope = redact(replace(slow_gpu(), findings=(finding,)), KEY).report.findings[0].scope
    host = redacted_host("host-c", KEY)
    assert scope.hosts == (host,)
    assert scope.gpus[0].host == host
    assert scope.gpus[0].uuid != "weird-uuid"
    assert scope.links == (f"{host} mlx5_3/1",)


@pytest.mark.once
@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(reports)
def test_no_known_host_survives_in_its_own_field(report: Report) -> None:
    told = redact(report, KEY).report
    # Loopback and "any address" identify nobody and stay.
    kept = {"localhost", "unknown", "-", "", "::1", "::"}
    for host in told.subject.hosts:
        assert is_pseudonym(host) or host.lower() in kept or not host.strip()


def test_our_own_words_are_not_taken_for_hosts() -> None:
    """ "host: …" stands in prose and in classes; ids must stay what a reader looks up."""
    lines = redacted_lines(
        "cause host:nofile, of each host: every CPU",
        "host clock of this host: unset",
        hosts=("vm",),
    )
    assert lines == [
        "cause host:nofile, of each host: every CPU",
        "host clock of this host: unset",
    ]


def test_a_host_of_two_letters_is_replaced() -> None:
    assert redacted_lines("vm. torch raises on vm", hosts=("vm",)) == [
        f"{redacted_host('vm', KEY)}. torch raises on {redacted_host('vm', KEY)}"
    ]
