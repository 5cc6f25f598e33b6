"""The manifest parser: one answer that lists every problem, and nothing repaired."""

import json
from pathlib import Path

import jsonschema
import pytest

from ckptguard.errors import LimitExceededError, ManifestFormatError, UnsupportedFormatError
from ckptguard.formats.manifest_json import ManifestLimits, manifest_schema_text, parse_manifest, to_json
from ckptguard.model.manifest import Manifest, identity
from ckptguard.testing.manifests import (
    BAD_MANIFESTS,
    GOOD_MANIFESTS,
    BadManifest,
    full_members,
    minimal_members,
)

PROJECT = Path(__file__).resolve().parents[3]
GOLDEN = PROJECT / "tests" / "golden"
SCHEMA = jsonschema.Draft202012Validator(json.loads(manifest_schema_text()))
IDENTITIES = {
    "manifest_v1_full.json": "sha256:9941ee6393afa0f4d5819c6875a8c9799cdbf6f206fe293ebb4b0b950acce3a3",
    "manifest_v1_minimal.json": "sha256:ca1966128022d451a7771f0caa31ad9804b6479e22d1d6e06692494c5f886f6a",
}


def parse_members(members: object) -> Manifest:
    return parse_manifest(json.dumps(members).encode())


def problems_of(text: bytes, limits: ManifestLimits | None = None) -> list[str]:
    with pytest.raises(ManifestFormatError) as caught:
        parse_manifest(text, limits=limits)
    return list(caught.value.problems)


@pytest.mark.parametrize("name", GOOD_MANIFESTS)
def test_a_good_manifest_is_read_and_written_back_the_same(name: str) -> None:
    manifest = parse_members(GOOD_MANIFESTS[name]())
    assert parse_manifest(to_json(manifest)) == manifest


@pytest.mark.parametrize("bad", BAD_MANIFESTS, ids=lambda bad: bad.name)
def test_a_broken_rule_is_listed_with_its_place(bad: BadManifest) -> None:
    problems = problems_of(bad.text())
    assert [problem for problem in problems if problem.startswith(f"{bad.at}: ")], problems
    assert len(problems) == 1, problems


@pytest.mark.parametrize("bad", BAD_MANIFESTS, ids=lambda bad: bad.name)
def test_the_schema_refuses_what_the_parser_refuses(bad: BadManifest) -> None:
    assert SCHEMA.is_valid(bad.members()) is not bad.is_seen_by_schema


@pytest.mark.parametrize("name", GOOD_MANIFESTS)
def test_the_schema_accepts_what_the_parser_accepts(name: str) -> None:
    SCHEMA.validate(GOOD_MANIFESTS[name]())


def test_the_schema_is_one_and_the_published_one_is_the_shipped_one() -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(manifest_schema_text()))
    published = PROJECT / "docs" / "schemas" / "manifest-v1.schema.json"
    assert published.read_text("utf-8") == manifest_schema_text()


def test_all_problems_are_listed_at_once() -> None:
    members = full_members()
    for bad in ("step", "run"):
        members[bad] = -1
    members["files"][0] |= {"path": "../x", "length_bytes": -1, "checksum": "md5:00"}
    members["files"][1]["path"] = members["files"][2]["path"]
    members["world_size"] = None
    del members["writer"]["ckptguard"]
    places = [problem.partition(": ")[0] for problem in problems_of(json.dumps(members).encode())]
    assert sorted(places) == sorted(
        [
            "/run",
            "/step",
            "/files/0/path",
            "/files/0/length_bytes",
            "/files/0/checksum",
            "/files",
            "/world_size",
            "/writer/ckptguard",
        ]
    )


def test_a_long_list_of_problems_is_cut_and_counted() -> None:
    members = full_members()
    members["items"] = []
    members["files"] = [{**members["files"][0], "path": f"../{index}"} for index in range(50)]
    problems = problems_of(json.dumps(members).encode(), ManifestLimits(max_problems=10))
    assert len(problems) == 11
    assert problems[-1] == "and 40 more problems"


@pytest.mark.parametrize("version", [2, 10**9])
def test_a_later_version_is_not_ours_to_judge(version: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=str(version)):
        parse_members({"manifest_version": version, "anything": "else"})


@pytest.mark.parametrize(
    ("limits", "what"),
    [
        (ManifestLimits(max_bytes=100), "bytes of JSON"),
        (ManifestLimits(max_depth=2), "nested"),
        (ManifestLimits(max_values=20), "JSON values"),
        (ManifestLimits(max_files=2), "3 files"),
        (ManifestLimits(max_items=1), "2 items"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_beyond_a_limit_is_no_damage(limits: ManifestLimits, what: str) -> None:
    with pytest.raises(LimitExceededError, match=what):
        parse_manifest(json.dumps(full_members()).encode(), limits=limits)


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b'"manifest"', b"\xff\xfe", b"{", b"\xef\xbb\xbf{}"])
def test_what_is_no_json_object_is_refused(text: bytes) -> None:
    assert len(problems_of(text)) == 1


def test_a_manifest_cut_anywhere_is_refused() -> None:
    text = to_json(parse_members(full_members()))
    for length in range(len(text) - 1):  # the last byte is the newline
        with pytest.raises((ManifestFormatError, UnsupportedFormatError)):
            parse_manifest(text[:length])


@pytest.mark.parametrize("name", IDENTITIES)
def test_golden_manifests_are_read_for_ever(name: str) -> None:
    text = (GOLDEN / name).read_bytes()
    manifest = parse_manifest(text)
    assert to_json(manifest) == text
    assert str(identity(manifest)) == IDENTITIES[name]


def test_the_documented_example_is_canonical() -> None:
    page = (PROJECT / "docs" / "manifest.md").read_text("utf-8")
    example = page.partition("```json\n")[2].partition("```")[0].encode()
    assert to_json(parse_manifest(example)) == example


def test_unknown_fields_survive_at_every_level() -> None:
    written = json.loads(to_json(parse_members(full_members())))
    members = full_members()
    members["files"].sort(key=lambda file: file["path"])
    assert written == members


def test_times_are_written_in_one_form() -> None:
    members = minimal_members() | {"created_at": "2026-11-29T20:33:00.250000Z"}
    assert json.loads(to_json(parse_members(members)))["created_at"] == "2026-11-29T20:33:00.250000Z"
    members["created_at"] = "2026-11-29T20:33:00.000Z"
    assert json.loads(to_json(parse_members(members)))["created_at"] == "2026-11-29T20:33:00Z"
