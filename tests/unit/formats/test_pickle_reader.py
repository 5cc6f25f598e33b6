"""The pickle machine: every protocol as data, nothing run, every bound held."""

import pickle
import pickletools
import struct
import time
import tracemalloc
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from ckptguard.errors import LimitExceededError
from ckptguard.formats.pickle_reader import (
    BUDGET_BASE_BYTES,
    BUDGET_PER_BYTE,
    Buildable,
    Builder,
    Constant,
    GlobalRef,
    OddKey,
    Opaque,
    PickledSet,
    PickleError,
    PickleMalformedError,
    PickleTruncatedError,
    read_pickle,
)

PLAIN = {
    "numbers": [0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**63, -(2**63), 2**200, 0.5, -1e300],
    "constants": (None, True, False),
    "text": ["", "a", "ünï ☃", "x" * 300, "\x94)\x81"],
    "bytes": [b"", b"a", bytes(300)],
    "nested": {"tuples": ((), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), "empty": [[], {}]},
    7: "seven",
}


class Point(Buildable):
    """A value of ours."""

    def __init__(self, *args: object) -> None:
        self.args = args
        self.state: object = None

    def set_state(self, state: object) -> None:
        """Keep it."""
        self.state = state


def read(data: bytes, **builders: Builder | Constant) -> object:
    return read_pickle(
        data, builders={name.replace("__", "."): made for name, made in builders.items()}
    ).value


@pytest.mark.parametrize("protocol", range(6))
def test_plain_values_come_back_as_they_were(protocol: int) -> None:
    reading = read_pickle(pickle.dumps(PLAIN, protocol), builders={})
    expected = dict(PLAIN)
    if protocol < 3:  # bytes are written as a call of _codecs.encode
        expected.pop("bytes")
        assert isinstance(reading.value, dict)
        reading.value.pop("bytes")
    assert reading.value == expected


@pytest.mark.parametrize("protocol", range(6))
def test_optimized_pickles_with_gaps_in_their_memo_are_read(protocol: int) -> None:
    value = [("shared",), "other", "x"]
    data = pickletools.optimize(pickle.dumps([value, value, value[0]], protocol))
    assert read(data) == [value, value, value[0]]


def test_memo_indices_need_not_count_up() -> None:
    data = b"\x80\x02](U\x01aq\x05U\x01bq\x07h\x05h\x07e."
    assert read(data) == ["a", "b", "a", "b"]


def test_length_is_counted_to_stop_and_what_follows_is_ignored() -> None:
    data = pickle.dumps([1, 2])
    assert read_pickle(data + b"tail", builders={}).length_bytes == len(data)
    assert read_pickle(memoryview(data), builders={}).length_bytes == len(data)


def test_an_unknown_class_is_kept_as_data() -> None:
    reading = read_pickle(pickle.dumps(PurePosixPath("/a/b"), 4), builders={})
    assert isinstance(reading.value, Opaque)
    assert reading.value.ref.dotted in {"pathlib.PurePosixPath", "pathlib._local.PurePosixPath"}
    assert reading.value.args == ("/", "a", "b")
    assert reading.globals == {reading.value.ref.dotted}


def test_a_builder_makes_values_of_reduce_newobj_and_build() -> None:
    point = Builder(lambda args: Point(*args))
    reduced = read(b"\x80\x04cm\nP\n(K\x01K\x02tR.", m__P=point)
    made = read(b"\x80\x04cm\nP\n)\x81}X\x01\x00\x00\x00aK\x07sb.", m__P=point)
    assert isinstance(reduced, Point)
    assert reduced.args == (1, 2)
    assert isinstance(made, Point)
    assert made.state == {"a": 7}


def test_a_constant_stands_for_itself() -> None:
    assert read(b"ctorch\nfloat32\n.", torch__float32=Constant("float32")) == "float32"


def test_a_refusing_builder_is_malformed_not_a_crash() -> None:
    def refuse(args: tuple[object, ...]) -> object:
        msg = f"{len(args)} arguments"
        raise ValueError(msg)

    with pytest.raises(PickleMalformedError, match="0 arguments"):
        read(b"cm\nP\n)R.", m__P=Builder(refuse))


def test_persistent_ids_go_to_their_loader() -> None:
    data = b"\x80\x02(X\x07\x00\x00\x00storageK\x05tQ."
    loaded = read_pickle(data, builders={}, persistent_load=lambda pid: ("loaded", pid))
    assert loaded.value == ("loaded", ("storage", 5))
    with pytest.raises(PickleMalformedError, match="persistent id"):
        read_pickle(data, builders={})


def test_sets_and_subclasses_keep_their_elements() -> None:
    value = read(pickle.dumps({"set": {1}, "frozen": frozenset({2}), "dict": OrderedDict(a=1)}, 4))
    assert isinstance(value, dict)
    assert isinstance(value["set"], PickledSet)
    assert value["set"].elements == [1]
    assert value["frozen"].elements == [2]
    assert value["dict"].items == [("a", 1)]


def test_no_opcode_runs_anything(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    command = f"touch {marker}".encode()
    attacks = {
        "reduce": b"cposix\nsystem\n(U%c%stR." % (len(command), command),
        "obj": b"(cposix\nsystem\nU%c%so." % (len(command), command),
        "inst": b"(U%c%siposix\nsystem\n." % (len(command), command),
        "newobj": b"\x80\x02cposix\nsystem\nU%c%s\x85\x81." % (len(command), command),
        "stack_global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93U%c%s\x85R." % (len(command), command),
        "setstate": b"\x80\x02cm\nP\n)\x81}U\x0c__setstate__cposix\nsystem\nsbU%c%sb."
        % (len(command), command),
        "key": b"}cposix\nsystem\nU%c%s\x85RNs." % (len(command), command),
    }
    for data in attacks.values():
        reading = read_pickle(data, builders={})
        assert "posix.system" in reading.globals
    assert not marker.exists()


def test_globals_before_the_damage_are_told() -> None:
    with pytest.raises(PickleError) as caught:
        read_pickle(b"cposix\nsystem\n\xff", builders={})
    assert caught.value.globals == {"posix.system"}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00", "opcode 0x00"),
        (b"0.", "lacks an operand"),
        (b"h\x05.", "lacks an operand"),
        (b"(K\x01R.", "lacks an operand"),
        (b"K\x01K\x02R.", "not a tuple"),
        (b"K\x01)R.", "a int is called"),
        (b"K\x01K\x02b.", "state is given to a int"),
        (b"]]Ns.", "set in a list"),
        (b"})]a.", "appended to a tuple"),
        (b"}(K\x01u.", "key without a value"),
        (b"}]Ns.", "used as a key"),
        (b"\x80\x09.", "protocol 9"),
        (b"K\x01K\x02\x93.", "two strings"),
        (b"Ifive\n.", "invalid literal"),
        (b"Snoquotes\n.", "without quotes"),
        (b"\x82\x01.", "extension"),
        (b"\x97.", "opcode 0x97"),
        (b"Nr\xff\xff\xff\xff.", "memo index 4294967295"),
        (b"\x8b\xff\xff\xff\xff.", "negative length"),
        (b"\x8b\x00\x00\x01\x00" + bytes(65536) + b".", "integer of 65536 bytes"),
        (b"\x8c\x02\xff\xfe.", "utf-8"),
        (b"\x80\x04\x95\x04\0\0\0\0\0\0\0\x8c\x08abcdefgh.", "frame"),
    ],
)
def test_broken_rules_are_named(data: bytes, reason: str) -> None:
    with pytest.raises(PickleMalformedError, match=reason):
        read_pickle(data, builders={})


def test_every_prefix_of_a_pickle_is_truncated() -> None:
    data = pickle.dumps(PLAIN, 4)
    for end in range(len(data)):
        with pytest.raises(PickleTruncatedError) as caught:
            read_pickle(data[:end], builders={})
        assert caught.value.offset == end
        assert end < caught.value.needed_bytes <= len(data)


@pytest.mark.parametrize(
    "opcode", [b"X" + struct.pack("<I", 2**32 - 1), b"\x8d" + struct.pack("<Q", 2**62), b"\x8e" + b"\xff" * 8]
)
def test_a_length_beyond_the_data_allocates_nothing(opcode: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(PickleTruncatedError):
        read_pickle(opcode + b"abc", builders={})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_nesting_of_any_depth_takes_no_recursion() -> None:
    depth = 100_000
    for data in (
        b"]" * depth + b"a" * (depth - 1) + b".",
        b")" + b"\x85" * depth + b".",
        b"(" * depth + b"t" * depth + b".",
    ):
        assert read_pickle(data, builders={}).length_bytes == len(data)


def test_a_key_of_exponential_hash_is_not_hashed() -> None:
    # t = (); 200 times t = (t, t): hashing it visits 2**200 tuples.
    doubling = b")\x94" + b"".join(b"2\x86\x94" for _ in range(200))
    value = read(b"\x80\x04}" + doubling + b"Ns.")
    assert isinstance(value, dict)
    assert isinstance(next(iter(value)), OddKey)


def test_colliding_integer_keys_do_not_cost_quadratic_time() -> None:
    # All multiples of 2**61 - 1 hash to 0.
    keys = b"".join(b"\x8a\x0c" + (n * (2**61 - 1)).to_bytes(12, "little") + b"N" for n in range(1, 50_000))
    started = time.process_time()
    value = read(b"}(" + keys + b"u.")
    assert isinstance(value, dict)
    assert len(value) == 49_999
    assert time.process_time() - started < 10


@pytest.mark.parametrize(
    "unit", [b"]", b"}", b"(", b")\x85", b"]\x94", b"\x8f", b"2\x85\x94", b"cm\nP\n)\x81\x94"]
)
def test_memory_stays_in_proportion(unit: bytes) -> None:
    data = b"N" + unit * (2 * BUDGET_BASE_BYTES // 64 // len(unit)) + b"."
    tracemalloc.start()
    with suppress(LimitExceededError):
        read_pickle(data, builders={})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < BUDGET_BASE_BYTES * 1.5 + BUDGET_PER_BYTE * len(data)


def test_one_global_named_a_million_times_is_one() -> None:
    reading = read_pickle(b"(" + b"cm\nP\n" * 100_000 + b"l.", builders={})
    assert isinstance(reading.value, list)
    assert all(isinstance(ref, GlobalRef) and ref is reading.value[0] for ref in reading.value)
    assert reading.globals == {"m.P"}


def test_globals_without_end_are_refused() -> None:
    data = b"".join(b"cm\nP%d\n0" % n for n in range(20_000)) + b"N."
    with pytest.raises(PickleMalformedError, match="globals"):
        read_pickle(data, builders={})
    with pytest.raises(PickleMalformedError, match="too long"):
        read_pickle(b"c" + b"m" * 2000 + b"\nP\n.", builders={})


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_every_bit_flip_ends(protocol: int) -> None:
    data = pickle.dumps({"a": [1, 2**40, 0.5], "b": ({"c"}, b"bytes"), 3: PurePosixPath("/x")}, protocol)
    for offset in range(len(data)):
        for bit in range(8):
            flipped = bytearray(data)
            flipped[offset] ^= 1 << bit
            with suppress(PickleError, LimitExceededError):
                read_pickle(bytes(flipped), builders={})
