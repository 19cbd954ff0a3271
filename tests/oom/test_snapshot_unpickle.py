"""A pickle is read without running it, within bounds, and what cannot be read is said in one line."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from distdoctor.errors import InputError
from distdoctor.oom.snapshots import machine, unpickle
from distdoctor.oom.snapshots.machine import Dict, Refused
from distdoctor.oom.snapshots.read import read_snapshot, snapshot_of
from oom.snapshot_world import MIB, SnapshotWorld


class KeepAll:
    """Packs nothing."""

    def item(self, value: Dict) -> tuple[object, int] | None:
        return None

    def stack(self, items: list[object]) -> tuple[object, int] | None:
        return None


def load(data: bytes, **options: Any) -> object:
    return unpickle.load_pickle(data, KeepAll(), **options).value


SAMPLE = {
    "segments": [{"size": 1 << 40, "negative": -5, "id": (0, 1), "one": (7,), "three": (1, 2, 3)}],
    "text": ["", "é", "漢字", "a" * 300, "x" * 70_000],
    "numbers": [0, 255, 256, 65_535, 65_536, -1, 1 << 31, 1 << 63, (1 << 64) - 1, 0.25, True, False, None],
    "bytes": [b"", b"abc", b"z" * 300],
    "many": list(range(3000)),
    "tuple": tuple(range(9)),
    "keys": {str(each): each for each in range(2500)},
    3: {},
}


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_plain_data_of_every_protocol_is_read(protocol: int) -> None:
    sample: dict[Any, Any] = dict(SAMPLE)
    if protocol < 3:
        del sample["bytes"]  # before protocol 3, bytes are made by calling a function
    assert load(pickle.dumps(sample, protocol=protocol)) == sample


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_what_is_shared_stays_shared(protocol: int) -> None:
    shared = ["a", "b"]
    value = load(pickle.dumps({"x": shared, "y": [shared, shared]}, protocol=protocol))
    assert isinstance(value, dict)
    assert value["x"] is value["y"][0] is value["y"][1]


def test_a_list_that_holds_itself_is_read() -> None:
    loop: list[Any] = []
    loop.append(loop)
    value = load(pickle.dumps({"loop": loop}))
    assert isinstance(value, dict)
    assert value["loop"][0] is value["loop"]


class Malicious:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_a_pickle_that_would_run_a_command_is_refused_and_runs_nothing(protocol: int, tmp_path: Path) -> None:
    target = tmp_path / "ran"
    data = pickle.dumps({"segments": [], "device_traces": [[Malicious(target)]]}, protocol=protocol)
    with pytest.raises(Refused, match=r"names `posix\.system` for the reader to import .*nothing was run"):
        load(data)
    assert not target.exists()


RUNNING = {
    "GLOBAL": b"cos\nsystem\n.",
    "INST": b"(ios\nsystem\n.",
    "OBJ": b"(I1\no.",
    "REDUCE": b"I1\n(tR.",
    "BUILD": b"}}b.",
    "NEWOBJ": b"})\x81.",
    "NEWOBJ_EX": b"})}\x92.",
    "EXT1": b"\x82\x01.",
    "EXT2": b"\x83\x01\x00.",
    "EXT4": b"\x84\x01\x00\x00\x00.",
    "STACK_GLOBAL": b"\x8c\x02os\x8c\x06system\x93.",
    "PERSID": b"Pabc\n.",
    "BINPERSID": b"I1\nQ.",
}


@pytest.mark.parametrize("opcode", RUNNING)
def test_every_opcode_that_imports_or_calls_is_refused_by_name(opcode: str) -> None:
    with pytest.raises(Refused, match=rf"opcode {opcode} at byte \d+"):
        load(b"\x80\x04" + RUNNING[opcode])


@pytest.mark.parametrize("opcode", ["GLOBAL", "INST", "STACK_GLOBAL"])
def test_what_would_have_been_imported_is_named(opcode: str) -> None:
    with pytest.raises(Refused, match=r"names `os\.system`"):
        load(b"\x80\x04" + RUNNING[opcode])


def test_every_opcode_of_python_is_either_read_or_refused_in_words() -> None:
    import pickletools

    for opcode in pickletools.opcodes:
        assert unpickle.HANDLERS[ord(opcode.code)] is not unpickle.unknown, opcode.name


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80\x02]r\xff\xff\xff\xff.", "remembers an object under number 4294967295"),
        (b"]p4294967295\n.", "remembers an object under number 4294967295"),
        (b"\x80\x04]j\xff\xff\xff\xffa.", "recalls object 4294967295 of 0"),
        (b"\x80\x04\x8b\xff\xff\xff\x7f.", "a number of 2147483647 bytes"),
        (b"\x80\x04\x8b\xff\xff\xff\xff.", "a number of -1 bytes"),
        (b"T\xff\xff\xff\xff.", "negative length"),
        (b"I" + b"9" * 100_000 + b"\n.", "a number that is none"),
        (b"F" + b"9" * 100_000 + b"\n.", "a number that is none"),
        (b"\x80\x04" + b"(" * 100_000, "nested deeper than 64"),
        (b"\x80\x04})Ns.", "has a tuple as a key"),
        (b"\x80\x04}]Ns.", "has a list as a key"),
        (b"\x80\x04\x8f.", "holds a set"),
        (b"\x80\x04]Ns.", "takes a value that is not there|sets an entry"),
        (b"\x80\x04Na.", "takes a value that is not there"),
        (b"\x80\x04NNa.", "appends to what is no list"),
        (b"\x80\x04e.", "takes a value that is not there"),
        (b"\x80\x04NN.", "loose values"),
        (b"\x80\x04.", "loose values"),
        (b"\x80\x09N.", "protocol 9"),
        (b"\x80\x04\x86.", "takes a value that is not there"),
        (b"hello world", "recalls object 101|no pickle"),
        (b"\xff\xfe\x00", "is no pickle"),
    ],
)
def test_damage_and_tricks_end_in_one_line(data: bytes, words: str) -> None:
    with pytest.raises(Refused, match=words) as caught:
        load(data)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80\x04\x8e" + struct.pack("<Q", (1 << 63) - 1) + b"x",
        b"\x80\x04\x8d" + struct.pack("<Q", (1 << 64) - 1) + b"x",
        b"\x80\x04B\xff\xff\xff\xffx",
        b"\x80\x04X\xff\xff\xff\xffx",
        b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\xff",
        b"Vno end of line",
        b"\x80",
        b"\x80\x04]\x94(K",
    ],
)
def test_declared_lengths_beyond_the_file_count_as_cut_off(data: bytes) -> None:
    assert unpickle.load_pickle(data, KeepAll()).is_cut


def test_any_cut_of_a_pickle_is_cut_and_never_an_error() -> None:
    data = pickle.dumps({"a": [1, 2, {"b": "text"}], "c": (1.5, 1 << 40), "d": [[] for _ in range(5)]})
    whole = load(data)
    for length in range(1, len(data)):
        loaded = unpickle.load_pickle(data[:length], KeepAll())
        assert loaded.is_cut
        assert isinstance(loaded.value, dict)
        assert all(whole[key] == value for key, value in loaded.value.items())  # type: ignore[index]


def test_any_damaged_byte_gives_a_value_or_one_line() -> None:
    world = SnapshotWorld()
    for _ in range(3):
        world.alloc(3 * MIB, "/a/model.py:3:forward", "/a/train.py:9:main")
    data = world.pickled()
    for place in range(0, len(data), 3):
        for byte in (0x00, 0x28, 0x5D, 0x65, 0x73, 0x94, 0xFF):
            damaged = data[:place] + bytes([byte]) + data[place + 1 :]
            try:
                snapshot_of(damaged, path="x.pickle")
            except InputError as error:
                assert "\n" not in error.message


def test_bytes_after_the_end_are_counted_and_not_read() -> None:
    loaded = unpickle.load_pickle(pickle.dumps({"a": 1}) + b"cos\nsystem\n", KeepAll())
    assert loaded.value == {"a": 1}
    assert loaded.trailing_bytes == 11


def test_the_limit_is_named_when_it_is_what_stops_the_reading() -> None:
    with pytest.raises(Refused, match="more memory than the limit of 1 MiB"):
        load(pickle.dumps([str(each) for each in range(100_000)]), max_bytes=MIB)


# --- memory, measured in a child process ----------------------------------------------------------------------

CHILD = textwrap.dedent(
    """
    import re, sys
    from pathlib import Path
    from distdoctor.errors import InputError
    from distdoctor.oom.snapshots.read import read_snapshot

    def resident(name):
        return int(re.search(rf"{name}:\\s*(\\d+) kB", Path("/proc/self/status").read_text()).group(1)) * 1024

    # getrusage would tell the parent's peak, which a child inherits until it is beyond it.
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    try:
        read_snapshot(sys.argv[1])
        print("read")
    except InputError as error:
        print(error.message)
    after = resident("VmHWM")
    print(after, after - before)
    """
)


def measured(path: str) -> tuple[str, int, int]:
    """What reading said; the peak of the process; the growth by reading (bytes)."""
    done = subprocess.run(
        [sys.executable, "-c", CHILD, path], capture_output=True, text=True, timeout=120, check=True
    )
    words, numbers = done.stdout.strip().rsplit("\n", 1)
    peak, growth = numbers.split()
    assert not done.stderr
    return words, int(peak), int(growth)


EVENT = b"}\x94(\x8c\x06action\x8c\x05alloc\x8c\x04addrK\x01\x8c\x04sizeK\x01u"

BOMBS = {
    "nine bytes of memo": b"\x80\x02}r\xff\xff\xff\xff.",
    "lists in hand": b"\x80\x04" + b"]" * 3_000_000,
    "dicts in hand": b"\x80\x04" + b"}" * 3_000_000,
    "nested lists": b"\x80\x04" + b"]" * 300_000 + b"a" * 299_999 + b".",
    "marks": b"\x80\x04" + b"(" * 3_000_000,
    "duplicates": b"\x80\x04N" + b"2" * 3_000_000,
    "remembered": b"\x80\x04N" + b"\x94" * 3_000_000,
    "tuples of tuples": b"\x80\x04)" + b"\x85" * 3_000_000,
    "doubled lists": b"\x80\x04]\x94" + b"](h\x00h\x00e\x94" * 10 + b"](" + b"h\x00" * 1_000_000 + b"e.",
    "empty texts": b"\x80\x04](" + b"\x8c\x00" * 1_500_000 + b"e.",
    "numbers": b"\x80\x04](" + b"M\xff\xff" * 1_000_000 + b"e.",
    "floats": b"\x80\x04](" + b"G????????" * 400_000 + b"e.",
    "events": b"\x80\x04](" + EVENT * 80_000 + b"e.",
    "one event, many times": b"\x80\x04](" + EVENT + b"2" * 3_000_000 + b"e.",
    "small stacks": b"\x80\x04}\x94(\x8c\x08filename\x8c\x01a\x8c\x04lineK\x01u"
    + b"".join(b"](h\x00" + b"h\x00" * (each % 900) + b"e0" for each in range(3000)),
    "dicts with one entry": b"\x80\x04](" + b"}K\x00Ns" * 700_000 + b"e.",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_made_to_fill_memory_stays_below_200_mb(name: str, tmp_path: Path) -> None:
    path = tmp_path / "bomb.pickle"
    path.write_bytes(BOMBS[name])
    words, peak, growth = measured(str(path))
    assert "\n" not in words
    assert peak < 200 * 10**6, (words, peak)
    # The bound holds for the whole process; what Python itself keeps in reserve is not counted to the byte.
    assert growth < machine.MAX_GROWTH * len(BOMBS[name]) + machine.SMALL_BYTES + 8 * MIB, (words, growth)


@pytest.mark.parametrize("stacks", [True, False])
@pytest.mark.once
def test_a_real_shape_is_read_within_8_times_its_size(stacks: bool, tmp_path: Path) -> None:
    world = SnapshotWorld(stacks=stacks)
    stack = tuple(
        f"/opt/site-packages/torch/nn/modules/module{each}.py:{each + 7}:call" for each in range(40)
    )
    for step in range(400):
        kept = [world.alloc(3 * MIB, f"/job/model.py:{layer}:forward", *stack) for layer in range(50)]
        for address in kept:
            world.free(address or 0, f"/job/model.py:{step % 7}:backward", *stack[5:])
    path = world.write(tmp_path / "snapshot.pickle")
    size = os.path.getsize(path)
    words, _, growth = measured(path)
    assert words == "read"
    assert growth < machine.MAX_GROWTH * size, f"{growth / size:.1f} times {size} bytes"


# --- files ----------------------------------------------------------------------------------------------------


def refusal(path: Path, data: bytes, **options: Any) -> str:
    path.write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_snapshot(str(path), **options)
    assert "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04rest", "a zip archive, as torch.save writes"),
        (b"<!DOCTYPE html>\n<html>", "a web page made of a snapshot"),
        (b'{"segments": []}', "is JSON"),
        (b"CUDA out of memory. Tried to allocate", "no pickle"),
        (pickle.dumps([1, 2]), "no memory snapshot"),
        (pickle.dumps({"a": 1}), "no `segments`"),
        (pickle.dumps({"segments": [1]}), "a segment is not described as one"),
        (pickle.dumps({"segments": [{"blocks": [], "total_size": "x"}]}), "a segment has no size"),
        (
            pickle.dumps({"segments": [{"blocks": [{"state": "odd", "size": 1}], "total_size": 5}]}),
            "a block has no size, or a state that is unknown",
        ),
        (gzip.compress(b"x" * 10, mtime=0), "no pickle"),
        (b"\x1f\x8b\x08rest of no gzip", "damaged gzip|no pickle"),
    ],
)
def test_a_file_that_is_no_snapshot_is_told_in_one_line(data: bytes, words: str, tmp_path: Path) -> None:
    import re

    assert re.search(words, refusal(tmp_path / "x.pickle", data))


def test_a_file_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.pickle", b"x" * (2 * MIB), max_bytes=MIB)
    assert "2 MiB, more than the limit of 1 MiB" in message


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    message = refusal(tmp_path / "x.pickle.gz", gzip.compress(b"\0" * (64 * MIB)), max_bytes=32 * MIB)
    assert "unpacks to more than" in message


def test_missing_files_folders_and_devices_are_told(tmp_path: Path) -> None:
    for path in (str(tmp_path / "none"), str(tmp_path), "/dev/zero"):
        with pytest.raises(InputError):
            read_snapshot(path)
