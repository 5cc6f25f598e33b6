"""The header's arithmetic: everything that a safetensors file can prove without a checksum."""

import json
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ckptguard.errors import FormatError
from ckptguard.formats.safetensors_dtypes import torch_dtype_of
from ckptguard.formats.safetensors_header import HeaderReading, HeaderTensor, read_header
from ckptguard.model.finding import Basis, CheckName, FindingCode, Severity
from ckptguard.model.policy import Limits
from ckptguard.storage.listing import list_folder
from ckptguard.storage.local import LocalStore

TWO_TENSORS: dict[str, Any] = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
    "b": {"dtype": "U8", "shape": [4], "data_offsets": [16, 20]},
}
DATA = bytes(range(20))


def encode(header: object, data: bytes = DATA) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def edited(edit: Callable[[dict[str, Any]], object]) -> bytes:
    header: dict[str, Any] = json.loads(json.dumps(TWO_TENSORS))
    edit(header)
    return encode(header)


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., HeaderReading]:
    def read_bytes(whole: bytes, *, limits: Limits | None = None) -> HeaderReading:
        (tmp_path / "x.safetensors").write_bytes(whole)
        store = LocalStore(tmp_path)
        listing = list_folder(store, "", max_files=10)
        return read_header(store, listing, "x.safetensors", limits or Limits())

    return read_bytes


def only(reading: HeaderReading) -> tuple[FindingCode, Severity]:
    (finding,) = reading.findings
    assert finding.file == "x.safetensors"
    return finding.code, finding.severity


def test_a_good_header_gives_absolute_extents_and_torch_dtypes(read: Callable[..., HeaderReading]) -> None:
    whole = encode(TWO_TENSORS)
    reading = read(whole)
    start = len(whole) - len(DATA)
    assert reading.findings == ()
    assert reading.header is not None
    assert reading.header.tensors == (
        HeaderTensor("a", "float32", (2, 2), start, 16),
        HeaderTensor("b", "uint8", (4,), start + 16, 4),
    )
    assert reading.header.length_bytes == len(whole)
    assert reading.header.data_offset == start
    assert reading.header.annotations == {"format": "pt"}


@pytest.mark.parametrize("padding", [b" " * 7, b"\n", b""])
def test_padding_after_the_header_is_legal(read: Callable[..., HeaderReading], padding: bytes) -> None:
    assert read(encode(json.dumps(TWO_TENSORS).encode() + padding)).findings == ()


def test_a_file_without_tensors_is_legal(read: Callable[..., HeaderReading]) -> None:
    reading = read(encode({}, b""))
    assert reading.findings == ()
    assert reading.header is not None
    assert reading.header.tensors == ()


def test_zero_size_tensors_and_scalars_are_legal(read: Callable[..., HeaderReading]) -> None:
    header = {
        "empty": {"dtype": "F32", "shape": [0, 3], "data_offsets": [8, 8]},
        "scalar": {"dtype": "I64", "shape": [], "data_offsets": [0, 8]},
        "first": {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]},
    }
    reading = read(encode(header, bytes(8)))
    assert reading.findings == ()
    assert reading.header is not None
    assert [tensor.fqn for tensor in reading.header.tensors] == ["first", "scalar", "empty"]


@pytest.mark.parametrize("cut", [1, 19, 20])
def test_a_cut_in_the_data_is_short_with_exact_bytes(read: Callable[..., HeaderReading], cut: int) -> None:
    whole = encode(TWO_TENSORS)
    reading = read(whole[:-cut])
    (finding,) = reading.findings
    assert finding.code is FindingCode.SHORT_SHARD
    assert finding.check is CheckName.BYTE_COUNT
    assert finding.basis is Basis.DAMAGE
    assert (finding.expected, finding.observed) == (str(len(whole)), str(len(whole) - cut))


def test_bytes_after_the_data_are_long_with_exact_bytes(read: Callable[..., HeaderReading]) -> None:
    whole = encode(TWO_TENSORS)
    (finding,) = read(whole + b"12345678").findings
    assert finding.code is FindingCode.LONG_SHARD
    assert (finding.expected, finding.observed) == (str(len(whole)), str(len(whole) + 8))


@pytest.mark.parametrize("length", [0, 7, 8, 30])
def test_a_cut_in_the_header_is_short(read: Callable[..., HeaderReading], length: int) -> None:
    reading = read(encode(TWO_TENSORS)[:length])
    assert reading.header is None
    assert only(reading) == (FindingCode.SHORT_SHARD, Severity.ERROR)


def test_an_absurd_header_length_is_malformed_and_allocates_nothing(
    read: Callable[..., HeaderReading],
) -> None:
    whole = encode(TWO_TENSORS)
    assert only(read(struct.pack("<Q", 10**12) + whole[8:])) == (
        FindingCode.HEADER_MALFORMED,
        Severity.ERROR,
    )


def test_a_header_beyond_the_limit_is_in_doubt_not_damaged(read: Callable[..., HeaderReading]) -> None:
    reading = read(encode(TWO_TENSORS), limits=Limits(max_header_bytes=16))
    assert only(reading) == (FindingCode.LIMIT_EXCEEDED, Severity.UNKNOWN)


@pytest.mark.parametrize(
    ("whole", "words"),
    [
        pytest.param(edited(lambda h: h["b"].update(data_offsets=[17, 21])), "gap", id="gap"),
        pytest.param(edited(lambda h: h["b"].update(data_offsets=[15, 19])), "overlaps", id="overlap"),
        pytest.param(edited(lambda h: h["a"].update(shape=[2, 3])), "need 192 bits", id="shape"),
        pytest.param(edited(lambda h: h["a"].update(dtype="BF16")), "need 64 bits", id="dtype"),
        pytest.param(edited(lambda h: h["a"].update(dtype="")), "dtype ''", id="empty dtype"),
        pytest.param(edited(lambda h: h["a"].update(dtype=None)), "dtype", id="no dtype"),
        pytest.param(edited(lambda h: h["a"].update(dtype="f32")), "dtype 'f32'", id="not a dtype"),
        pytest.param(edited(lambda h: h["a"].update(shape=[-2, -2])), "whole numbers", id="negative"),
        pytest.param(edited(lambda h: h["a"].update(shape=[2.0, 2])), "whole numbers", id="float"),
        pytest.param(edited(lambda h: h["a"].update(shape=[True, 4])), "whole numbers", id="bool"),
        pytest.param(edited(lambda h: h["a"].update(shape=4)), "whole numbers", id="shape not a list"),
        pytest.param(edited(lambda h: h["a"].pop("shape")), "whole numbers", id="no shape"),
        pytest.param(edited(lambda h: h["a"].update(shape=[1 << 63, 0])), "63 bits", id="dimension"),
        pytest.param(edited(lambda h: h["a"].update(shape=[1 << 40] * 9)), "2\\*\\*64", id="elements"),
        pytest.param(edited(lambda h: h["a"].update(data_offsets=[0, 16, 20])), "range", id="three offsets"),
        pytest.param(edited(lambda h: h["a"].update(data_offsets=[16, 0])), "range", id="backwards"),
        pytest.param(edited(lambda h: h.update(a=None)), "not an object", id="null entry"),
        pytest.param(edited(lambda h: h.update(__metadata__={"a": 1})), "texts", id="metadata value"),
        pytest.param(edited(lambda h: h.update(__metadata__=[])), "texts", id="metadata kind"),
        pytest.param(encode(b'{"a":1,"a":1}'), "repeated", id="repeated name"),
        pytest.param(encode(b'{"a":{"dtype":"U8","dtype":"U8"}}'), "repeated", id="repeated field"),
        pytest.param(encode(b'{"a":NaN}'), "NaN", id="NaN"),
        pytest.param(encode(b"[]"), "list", id="not an object"),
        pytest.param(encode(b""), "not JSON", id="empty header"),
        pytest.param(encode(b"\0" * 40), "not JSON", id="zeros"),
        pytest.param(encode(b"{}\0"), "not JSON", id="NUL padding"),
        pytest.param(encode(b"\xff{}"), "UTF-8", id="not UTF-8"),
        pytest.param(encode(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "deep", id="deep nesting"),
        pytest.param(
            encode(b'{"\\ud800":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}', b""),
            "Unicode",
            id="lone surrogate",
        ),
    ],
)
def test_every_broken_rule_is_named(read: Callable[..., HeaderReading], whole: bytes, words: str) -> None:
    reading = read(whole)
    assert reading.header is None
    assert {finding.code for finding in reading.findings} == {FindingCode.HEADER_MALFORMED}
    assert {finding.basis for finding in reading.findings} == {Basis.DAMAGE}
    assert any(re.search(words, finding.message) for finding in reading.findings)
    assert all(finding.message.encode() for finding in reading.findings)


def test_every_bad_tensor_is_reported_and_a_million_of_them_stay_bounded(
    read: Callable[..., HeaderReading],
) -> None:
    bad = {f"t{i}": {"dtype": "", "shape": [], "data_offsets": [0, 0]} for i in range(1000)}
    findings = read(encode(bad, b"")).findings
    assert len(findings) == 51
    assert findings[-1].message.endswith("950 more of the kind")


def test_a_dtype_of_a_newer_format_is_in_doubt_not_damaged(read: Callable[..., HeaderReading]) -> None:
    reading = read(edited(lambda header: header["a"].update(dtype="F16_NEW")))
    assert only(reading) == (FindingCode.UNKNOWN_LAYOUT, Severity.UNKNOWN)
    assert reading.header is not None
    assert reading.header.tensors[0].dtype == "F16_NEW"


@pytest.mark.parametrize(
    ("name", "shape", "length_bytes", "expected"),
    [
        ("F4", (2, 8), 8, ("float4_e2m1fn_x2", (2, 4))),
        ("F4", (2, 3), 3, ("float4_e2m1fn", (2, 3))),
        ("F6_E2M3", (4,), 3, ("float6_e2m3fn", (4,))),
        ("F8_E8M0", (3,), 3, ("float8_e8m0fnu", (3,))),
        ("F8_E4M3", (3,), 3, ("float8_e4m3fn", (3,))),
        ("C64", (1, 2), 16, ("complex64", (1, 2))),
        ("U16", (0,), 0, ("uint16", (0,))),
    ],
)
def test_sub_byte_and_small_floats_get_torch_names_and_sizes(
    name: str, shape: tuple[int, ...], length_bytes: int, expected: tuple[str, tuple[int, ...]]
) -> None:
    assert torch_dtype_of(name, shape, length_bytes=length_bytes) == expected


def test_half_a_byte_is_no_length() -> None:
    with pytest.raises(FormatError, match="need 12 bits"):
        torch_dtype_of("F4", (3,), length_bytes=2)


def test_a_dtype_that_torch_lacks_caps_and_does_not_condemn(read: Callable[..., HeaderReading]) -> None:
    reading = read(encode({"a": {"dtype": "F6_E3M2", "shape": [4], "data_offsets": [0, 3]}}, b"abc"))
    assert only(reading) == (FindingCode.NEEDS_OTHER_READER, Severity.WARNING)
    assert reading.header is not None


def test_no_flip_in_length_field_or_header_raises(read: Callable[..., HeaderReading]) -> None:
    seed = 20261
    whole = encode(TWO_TENSORS)
    chosen = random.Random(seed).sample(range((len(whole) - len(DATA)) * 8), 400)  # noqa: S311 - not a secret
    for bit in chosen:
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        reading = read(bytes(damaged))
        assert reading.header is not None or reading.findings, f"seed {seed}, bit {bit}"
