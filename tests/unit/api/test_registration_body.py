"""The body of a registration: strict, bounded, and every problem told at once."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from ckptguard.errors import (
    InvalidRequestError,
    LimitExceededError,
    ManifestFormatError,
    UnsupportedFormatError,
)
from ckptguard.formats.manifest_json import parse_manifest
from ckptguard.testing.manifests import BAD_MANIFESTS, GOOD_MANIFESTS, BadManifest, minimal_members
from ckptguard_api.routes.registration_body import parse_registration, request_schema

LOCATION = {"store": "demo", "path": "r/step-5"}
NAN = '"bytes_total": NaN'


def _body(**members: Any) -> bytes:  # noqa: ANN401 - JSON values
    return json.dumps({"location": LOCATION, "step": 5, **members}).encode()


def _with(manifest: dict[str, Any]) -> bytes:
    return _body(step=manifest.get("step", 5), manifest=manifest)


def _problems(body: bytes) -> list[str]:
    with pytest.raises((InvalidRequestError, ManifestFormatError)) as raised:
        parse_registration("r", body)
    assert isinstance(raised.value, InvalidRequestError | ManifestFormatError)
    assert raised.value.problems
    return list(raised.value.problems)


@pytest.mark.parametrize("name", GOOD_MANIFESTS)
def test_a_lawful_manifest_inside_is_the_same_as_alone(name: str) -> None:
    members = GOOD_MANIFESTS[name]() | {"run": "r"}
    body = json.dumps({"location": LOCATION, "step": members["step"], "manifest": members}).encode()
    request = parse_registration("r", body)
    assert request.manifest == parse_manifest(json.dumps(members).encode())


@pytest.mark.parametrize("bad", BAD_MANIFESTS, ids=lambda bad: bad.name)
def test_every_problem_of_a_manifest_is_told_with_its_place(bad: BadManifest) -> None:
    with pytest.raises(ManifestFormatError) as alone:
        parse_manifest(bad.text())
    body = b'{"location": {"store": "demo", "path": "a"}, "step": 5, "manifest": ' + bad.text() + b"}"
    assert _problems(body) == [f"/manifest{problem}" for problem in alone.value.problems]


def test_problems_of_request_and_manifest_are_told_together() -> None:
    manifest = minimal_members()
    manifest["files"][0]["path"] = "../x"
    places = {
        problem.partition(":")[0]
        for problem in _problems(_body(step="5", extra=1, manifest=manifest, location={"store": "demo"}))
    }
    assert places == {"/step", "/extra", "/location", "/manifest/files/0/path"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b"", ": not JSON"),
        (b"[1]", ": not a JSON object"),
        (b'{"step": 5', ": not JSON"),
        (b"\xff{}", ": not UTF-8"),
        (
            b'{"location": {"url": "/a"}, "step": 5, "step": 6, "save_id": "s"}',
            "/step: key stands more than once",
        ),
        (b'{"location": {"url": "/a"}, "step": NaN}', "/step: NaN is not JSON"),
        (b'{"location": {"url": "/a"}, "step": 9007199254740993}', "/step: integer beyond"),
        (b'{"location": {"url": "/a"}, "step": 1e999}', "/step: number too large"),
        (b'{"location": {"url": "/a"}, "step": 5, "manifest": []}', "/manifest: not a JSON object"),
        (
            b'{"location": {"url": "/a"}, "step": 5, "manifest": {}, "manifest": {}}',
            "/manifest: key stands more",
        ),
        (b'{"location": {"url": "/a"}, "step": 5, "manifest": NaN}', "/manifest: NaN is not JSON"),
        (
            b'{"location": {"url": "/a"}, "step": 5, "manifest": {"a": {"b": 1, "b": 2}}}',
            "/manifest/a/b: key stands",
        ),
    ],
)
def test_nothing_is_repaired(text: bytes, problem: str) -> None:
    assert any(each.startswith(problem) for each in _problems(text)), _problems(text)


@pytest.mark.parametrize(
    ("members", "place"),
    [
        ({"step": -1}, "/step"),
        ({"step": 5.0}, "/step"),
        ({"step": True}, "/step"),
        ({"branch": "0"}, "/branch"),
        ({"branch": 2**31}, "/branch"),
        ({"depth": "deep"}, "/depth"),
        ({"validate": 1}, "/validate"),
        ({"save_id": ""}, "/save_id"),
        ({"save_id": "a\nb"}, "/save_id"),
        ({"save_id": "a\u0000b"}, "/save_id"),
        ({"num_files": 0}, "/num_files"),
        ({"num_files": 2**31}, "/num_files"),
        ({"bytes_total": -1}, "/bytes_total"),
        ({"created_at": 1_700_000_000}, "/created_at"),
        ({"created_at": "1700000000"}, "/created_at"),
        ({"created_at": "2026-11-29"}, "/created_at"),
        ({"created_at": "2026-11-29T12:00:00"}, "/created_at"),
        ({"created_at": "2026-02-30T12:00:00Z"}, "/created_at"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "/created_at"),
        ({"location": {"url": "/a", "store": "demo", "path": "a"}}, "/location"),
        ({"location": {"url": "/a", "root": 1}}, "/location/root"),
        ({"location": "/a"}, "/location"),
        ({"location": {"url": "/a" * 2000}}, "/location/url"),
    ],
)
def test_a_field_that_is_wrong_is_named(members: dict[str, Any], place: str) -> None:
    problems = _problems(_body(**{"save_id": "s", **members}))
    assert [problem.partition(":")[0] for problem in problems] == [place]


def test_times_of_any_zone_become_utc() -> None:
    request = parse_registration("r", _body(created_at="2026-11-29T12:00:00.25+02:00"))
    assert request.described.created_at == datetime(2026, 11, 29, 10, 0, 0, 250_000, tzinfo=UTC)


def test_a_later_version_is_not_called_broken() -> None:
    with pytest.raises(UnsupportedFormatError):
        parse_registration("r", _with({**minimal_members(), "manifest_version": 2}))


@pytest.mark.parametrize(
    "body",
    [
        b'{"manifest": {"files": [' + b"0," * 16_000_001 + b"0]}}",
        b'{"manifest": ' + b"[" * 40 + b"]" * 40 + b"}",
        b'{"manifest": {"manifest_version": 1, "files": [' + b"0," * 1_000_000 + b"0]}}",
    ],
    ids=["sixteen million values", "deep", "a million and one files"],
)
def test_a_body_beyond_a_limit_is_refused_before_anything_is_built(body: bytes) -> None:
    with pytest.raises(LimitExceededError):
        parse_registration("r", body)


def test_the_schema_stands_by_itself() -> None:
    text = json.dumps(request_schema())
    assert "$ref" not in text
    assert set(request_schema()["properties"]) >= {"location", "step", "manifest", "validate", "depth"}
