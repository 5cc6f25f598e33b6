"""Megatron's integrity.json, as `save_integrity_manifest` of megatron-core 0.20 writes it."""

import json

import pytest

from ckptguard.errors import LimitExceededError, ManifestFormatError, UnsupportedFormatError
from ckptguard.formats.integrity_json import parse_integrity
from ckptguard.formats.manifest_json import ManifestLimits

ZEROS = "0" * 64
ONES = "1" * 64


def text_of(**members: object) -> bytes:
    return json.dumps(members, indent=2).encode()


def test_each_file_is_named_with_its_sha256() -> None:
    parsed = parse_integrity(text_of(algorithm="sha256", files={"common.pt": ONES, ".metadata": ZEROS}))
    assert [(name, str(checksum)) for name, checksum in parsed] == [
        (".metadata", f"sha256:{ZEROS}"),
        ("common.pt", f"sha256:{ONES}"),
    ]


def test_a_missing_algorithm_is_sha256_as_for_megatron() -> None:
    assert len(parse_integrity(text_of(files={".metadata": ZEROS}))) == 1


def test_another_algorithm_is_not_ours_to_judge() -> None:
    with pytest.raises(UnsupportedFormatError, match="md5"):
        parse_integrity(text_of(algorithm="md5", files={}))


def test_too_many_files_are_no_damage() -> None:
    with pytest.raises(LimitExceededError):
        parse_integrity(text_of(files={"a": ZEROS, "b": ZEROS}), limits=ManifestLimits(max_files=1))


@pytest.mark.parametrize(
    ("data", "places"),
    [
        (text_of(algorithm="sha256"), ["/files"]),
        (text_of(files=[]), ["/files"]),
        (text_of(files={"a": ZEROS[1:], "b": 7, "c": "F" * 64}), ["/files/a", "/files/b", "/files/c"]),
        (text_of(files={"../x": ZEROS}), ["/files/..~1x", "/files/..~1x"]),
        (text_of(files={"a/b": ZEROS}), ["/files/a~1b"]),
        (b'{"files": {"a": "%b", "a": "%b"}}' % (ZEROS.encode(), ONES.encode()), ["/files/a"]),
        (text_of(files={"a": ZEROS})[:40], [""]),
        (b"[]", [""]),
    ],
)
def test_damage_lists_every_problem(data: bytes, places: list[str]) -> None:
    with pytest.raises(ManifestFormatError) as caught:
        parse_integrity(data)
    assert [problem.partition(": ")[0] for problem in caught.value.problems] == places
